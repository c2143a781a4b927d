//! How a mount is written on an engine's command line: `--volume`, or `--mount` for paths with a colon.

use std::ffi::OsString;

use crate::config::value::Access;
use crate::error::{Error, Result};
use crate::plan::{EngineKind, Mount, Source};

/// The flag and its value.
pub fn arguments(mount: &Mount, engine: EngineKind) -> Result<[OsString; 2]> {
    let target = text(mount.target.to_str(), &mount.target, engine)?;
    let source = match &mount.source {
        Source::Tmpfs { mode } => {
            if target.contains([':', ',']) {
                return Err(Error::usage(format!(
                    "`{target}` cannot be a private temp directory: it contains a colon or a comma"
                )));
            }
            // Engines mount it noexec by default, which breaks builds.
            return Ok(["--tmpfs".into(), format!("{target}:rw,exec,mode={mode:o}").into()]);
        }
        Source::Host(path) => text(path.to_str(), path, engine)?,
        Source::Machine(path) => text(path.to_str(), path, engine)?,
        Source::Volume(name) => name,
        Source::Link(_) | Source::Text(_) => {
            return Err(Error::usage(format!(
                "`{target}` is a link or a generated file, which {} cannot make",
                engine.name()
            )));
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
        return Err(Error::usage(format!(
            "Podman cannot mount `{source}`: its path contains both a colon and a comma"
        ))
        .hint("use Docker, or rename the directory"));
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

/// One field of CSV.
fn quote(field: String) -> String {
    if field.contains([',', '"', '\n', '\r']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field }
}

/// Engines carry paths in JSON, which has no place for other bytes than UTF-8.
fn text<'a>(text: Option<&'a str>, shown: &dyn std::fmt::Display, engine: EngineKind) -> Result<&'a str> {
    text.ok_or_else(|| {
        Error::usage(format!("`{shown}` is not UTF-8, and {} cannot mount such a path", engine.name()))
            .hint("rename it, or use another engine")
    })
}
