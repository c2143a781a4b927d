//! Writes a mount as the engine's flag: `--volume`, `--tmpfs`, or `--mount` for paths with a colon.

use std::ffi::OsString;

use super::LaunchError;
use crate::config::value::Access;
use crate::path::HostPath;
use crate::plan::{EngineKind, Mount, Source};

/// Returns the flag and its value.
pub fn arguments(mount: &Mount, engine: EngineKind) -> Result<[OsString; 2], LaunchError> {
    let target = text(mount.target.to_str(), &mount.target, engine)?;
    let source = match &mount.source {
        Source::Tmpfs { mode } => {
            if target.contains([':', ',']) {
                return Err(LaunchError::TmpfsTarget { target: target.to_owned() });
            }
            // Engines mount it noexec by default, which breaks builds.
            return Ok(["--tmpfs".into(), format!("{target}:rw,exec,mode={mode:o}").into()]);
        }
        Source::Host(path) => text(path.to_str(), path, engine)?,
        Source::Machine(path) => text(path.to_str(), path, engine)?,
        Source::Volume(name) => name,
        Source::Overlay { host, layer } => return overlay(host, layer, target, engine),
        Source::Link(_) | Source::Text(_) | Source::Cache { .. } => {
            return Err(LaunchError::UnsupportedSource { target: target.to_owned(), engine });
        }
    };
    let mut options: Vec<&str> = Vec::new();
    if mount.access == Access::Ro {
        options.push("ro");
    }
    if mount.relabel && engine == EngineKind::Podman {
        options.push("z");
    }
    if !source.contains(':') && !target.contains(':') {
        let mut value = format!("{source}:{target}");
        if !options.is_empty() {
            value = format!("{value}:{}", options.join(","));
        }
        return Ok(["--volume".into(), value.into()]);
    }
    // Podman 4.3 splits at every comma, quoted or not; Docker reads CSV.
    if engine == EngineKind::Podman && (source.contains(',') || target.contains(',')) {
        return Err(LaunchError::ColonAndComma { source_path: source.to_owned() });
    }
    let mut fields = vec!["type=bind".to_owned(), format!("source={source}"), format!("target={target}")];
    if mount.access == Access::Ro {
        fields.push("readonly".into());
    }
    if mount.relabel && engine == EngineKind::Podman {
        fields.push("relabel=shared".into());
    }
    let fields: Vec<String> = fields.into_iter().map(quote).collect();
    Ok(["--mount".into(), fields.join(",").into()])
}

/// Lays a directory for changes over a directory of the host. The marks of Docker's can be read
/// without root; `copied_workspace` has checked that no name contains a separator.
fn overlay(host: &HostPath, layer: &HostPath, target: &str, engine: EngineKind) -> Result<[OsString; 2], LaunchError> {
    let (upper, work) = (layer.join("upper"), layer.join("work"));
    let host = text(host.to_str(), host, engine)?;
    let [upper, work] = [text(upper.to_str(), &upper, engine)?, text(work.to_str(), &work, engine)?];
    if engine == EngineKind::Podman {
        return Ok(["--volume".into(), format!("{host}:{target}:O,upperdir={upper},workdir={work}").into()]);
    }
    let options = format!("volume-opt=o=lowerdir={host},upperdir={upper},workdir={work},userxattr");
    let kind = "type=volume,volume-driver=local,volume-opt=type=overlay,volume-opt=device=overlay";
    Ok(["--mount".into(), format!("{kind},dst={target},{}", quote(options)).into()])
}

/// Quotes a field as CSV requires.
fn quote(field: String) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

/// Engines send paths as JSON, which cannot represent bytes that are not UTF-8.
fn text<'a>(text: Option<&'a str>, shown: &dyn std::fmt::Display, engine: EngineKind) -> Result<&'a str, LaunchError> {
    text.ok_or_else(|| LaunchError::PathNotUtf8 { path: shown.to_string(), engine })
}
