//! `sandpen image`: images that the native engine runs without a container engine.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::cli::{Format, ImageAction};
use crate::config::value::{ImageRef, Value};
use crate::error::Result;
use crate::facts;
use crate::host::Host;
use crate::image::archive::{ArchiveSource, import};
use crate::image::{ImageError, Store, StoredImage};
use crate::process::Outcome;
use crate::resolve::pull_image;
use crate::ui::escape::escape;
use crate::ui::{self, Ui, counted, size};

pub fn run(action: ImageAction, ui: Ui) -> Result<Outcome> {
    let host = Host::read()?;
    let store = Store::of(&host);
    match action {
        ImageAction::Pull { reference } => {
            let image = pull_image(&host, &ImageRef::from_text(&reference)?, &facts::search_path(&host), ui)?;
            report(&[image], ui)?;
        }
        ImageAction::Import { archive, tag } => {
            let tag = tag.map(|tag| ImageRef::from_text(&tag)).transpose()?;
            let images = import_archive(&store, &archive, tag.as_ref())?;
            report(&images, ui)?;
        }
        ImageAction::List { format } => {
            let images = store.list().map_err(ImageError::Store)?;
            let text = match format {
                Format::Json => ui::json(&images.iter().map(to_json).collect::<Vec<_>>())?,
                Format::Text => to_text(&images),
            };
            ui.data(&text)?;
        }
        ImageAction::Rm { references } => remove(&store, &references, ui)?,
    }
    Ok(Outcome::Exited(0))
}

fn import_archive(store: &Store, archive: &Path, tag: Option<&ImageRef>) -> Result<Vec<StoredImage>> {
    let name = archive.display().to_string();
    let is_stdin = archive == Path::new("-");
    let stream: Box<dyn Read> = if is_stdin {
        Box::new(io::stdin().lock())
    } else {
        let unreadable = |source| ImageError::Unreadable { name: name.clone(), source };
        let file = File::open(archive).map_err(unreadable)?;
        if file.metadata().map_err(unreadable)?.is_dir() {
            return Err(ImageError::IsDirectory { name }.into());
        }
        Box::new(file)
    };
    let origin = if is_stdin { "imported from a stream".to_owned() } else { format!("imported from {name}") };
    Ok(import(store, stream, &ArchiveSource { name: &name, tag, origin: &origin })?)
}

/// Prints the references for scripts, and what they are for people.
fn report(images: &[StoredImage], ui: Ui) -> Result<()> {
    for image in images {
        ui.verbose(&format!("{}: {}, {}", image.reference, size(image.bytes), counted(image.layers.len(), "layer")));
        ui.data(&format!("{}\n", image.reference))?;
    }
    Ok(())
}

fn remove(store: &Store, references: &[String], ui: Ui) -> Result<()> {
    let images = references.iter().map(|text| ImageRef::from_text(text)).collect::<std::result::Result<Vec<_>, _>>()?;
    for image in &images {
        if !store.remove(image).map_err(ImageError::Store)? {
            return Err(ImageError::Missing { reference: image.to_string() }.into());
        }
    }
    free(store, ui)
}

/// Removes what no image needs, and says how much that was.
pub fn free(store: &Store, ui: Ui) -> Result<()> {
    let removed = store.collect().map_err(ImageError::Store)?;
    if removed.layers > 0 {
        ui.notice(&format!("{} of images removed, {}", counted(removed.layers, "layer"), size(removed.bytes)));
    }
    if removed.in_use > 0 {
        let layers = counted(removed.in_use, "layer");
        ui.notice(&format!("{layers} of running sandboxes stay until `sandpen prune`"));
    }
    Ok(())
}

fn to_json(image: &StoredImage) -> Json {
    json!({
        "reference": image.reference,
        "digest": image.digest.to_string(),
        "bytes": image.bytes,
        "platform": image.platform,
        "origin": image.origin,
    })
}

fn to_text(images: &[StoredImage]) -> String {
    let width = images.iter().map(|image| image.reference.len()).max().unwrap_or(0);
    let line = |image: &StoredImage| {
        let digest = &image.digest.hex()[..12];
        format!(
            "{:width$}  {digest}  {:>9}  {}  {}\n",
            image.reference,
            size(image.bytes),
            image.platform,
            image.origin
        )
    };
    images.iter().map(line).map(|line| escape(line.trim_end()).into_owned() + "\n").collect()
}
