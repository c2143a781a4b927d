//! Writes a mount as the engine's flag: `--volume`, `--tmpfs`, or `--mount` for paths with a colon and
//! for Docker's overlays.

use std::ffi::OsString;

use super::LaunchError;
use crate::config::value::Access;
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
        Source::Cache { host, layer } => {
            let parts = [host.clone(), layer.join("upper"), layer.join("work")];
            let [host, upper, work] = parts.each_ref().map(|path| text(path.to_str(), path, engine));
            return Ok(overlay(target, host?, upper?, work?, engine));
        }
        Source::Link(_) | Source::Text(_) => {
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

/// Mounts an overlay, of which the engine writes the layer `upper` only. The paths contain no
/// separators of options.
fn overlay(target: &str, host: &str, upper: &str, work: &str, engine: EngineKind) -> [OsString; 2] {
    if engine == EngineKind::Podman {
        return ["--volume".into(), format!("{host}:{target}:O,upperdir={upper},workdir={work}").into()];
    }
    // An anonymous volume, which Docker removes with the container. It would copy the image's files
    // to the layer without `volume-nocopy`, and keep notes as the host's root without `userxattr`.
    let options = format!("volume-opt=o=lowerdir={host},upperdir={upper},workdir={work},userxattr");
    let fields = [
        "type=volume",
        &format!("target={target}"),
        "volume-nocopy",
        "volume-driver=local",
        "volume-opt=type=overlay",
        "volume-opt=device=overlay",
        &options,
    ];
    ["--mount".into(), fields.map(|field| quote(field.to_owned())).join(",").into()]
}

/// Quotes a field as CSV requires.
fn quote(field: String) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

/// Engines send paths as JSON, which cannot represent bytes that are not UTF-8.
fn text<'a>(text: Option<&'a str>, shown: &dyn std::fmt::Display, engine: EngineKind) -> Result<&'a str, LaunchError> {
    text.ok_or_else(|| LaunchError::PathNotUtf8 { path: shown.to_string(), engine })
}
