use std::sync::Barrier;

use super::*;
use crate::config::value::Value;
use crate::image::archive::{ArchiveSource, import};
use crate::image::unpack::UnpackLimits;

fn store() -> (tempfile::TempDir, Store) {
    let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
    let base = HostPath::new(directory.path().join("images")).expect("absolute");
    (directory, Store { base })
}

fn image(name: &str) -> ImageRef {
    ImageRef::parse(name).expect("reference")
}

fn tar(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, *content).expect("memory");
    }
    builder.into_inner().expect("memory")
}

/// Returns an archive as `docker save` writes it.
fn saved(name: &str, layers: &[Vec<u8>], diff_ids: &[Digest]) -> Vec<u8> {
    let ids: Vec<String> = diff_ids.iter().map(Digest::to_string).collect();
    let config = serde_json::json!({
        "architecture": "amd64", "os": "linux",
        "config": {"Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": ids},
    });
    let names: Vec<String> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    let manifest = serde_json::json!([{"Config": "config.json", "RepoTags": [name], "Layers": names}]);
    let (config, manifest) = (config.to_string(), manifest.to_string());
    let mut files: Vec<(&str, &[u8])> =
        names.iter().map(String::as_str).zip(layers.iter().map(Vec::as_slice)).collect();
    files.extend([("config.json", config.as_bytes()), ("manifest.json", manifest.as_bytes())]);
    tar(&files)
}

fn add(store: &Store, name: &str, layers: &[Vec<u8>]) -> Result<Vec<StoredImage>, crate::image::ImageError> {
    let ids: Vec<Digest> = layers.iter().map(|layer| Digest::of(layer)).collect();
    let archive = saved(name, layers, &ids);
    import(store, &archive[..], &ArchiveSource { name: "archive", tag: None, origin: "test" })
}

fn entries(store: &Store, name: &str) -> usize {
    fs::read_dir(store.path(name)).map_or(0, |entries| entries.count())
}

#[test]
fn layers_are_shared_and_removed_with_the_last_image() -> io::Result<()> {
    let (_directory, store) = store();
    let (base, more) = (tar(&[("etc/passwd", b"root:x:0:0::/root:/bin/sh\n")]), tar(&[("b", b"12345")]));
    assert_eq!(store.collect()?, Removed::default());
    add(&store, "one:1", std::slice::from_ref(&base)).expect("imported");
    let images = add(&store, "localhost/two", &[base.clone(), more.clone()]).expect("imported");
    assert_eq!(images[0].reference, "localhost/two:latest");
    assert_eq!(images[0].bytes, 31);
    assert_eq!(images[0].user.as_ref().map(|user| user.home.as_str()), Some("/root"));
    assert_eq!(entries(&store, "layers"), 2);
    assert_eq!(store.list()?.len(), 2);
    assert!(store.find(&image("docker.io/library/one:1"))?.is_some());
    assert!(store.find(&image("one:2"))?.is_none());
    // A running sandbox holds its layers.
    let held = hold_layer(store.layer_files(&Digest::of(&more)).as_path())?;
    assert!(store.remove(&image("localhost/two"))? && !store.remove(&image("localhost/two"))?);
    assert_eq!(store.collect()?, Removed { layers: 0, bytes: 0, in_use: 1 });
    drop(held);
    assert_eq!(store.collect()?, Removed { layers: 1, bytes: 5, in_use: 0 });
    assert!(store.find(&image("one:1"))?.is_some());
    assert_eq!((entries(&store, "layers"), entries(&store, "new")), (1, 0));
    Ok(())
}

#[test]
fn attack_32_a_layer_with_another_digest_is_refused() -> io::Result<()> {
    let (_directory, store) = store();
    let layer = tar(&[("a", b"a")]);
    let archive = saved("one", &[layer], &[Digest::of(b"something else")]);
    let error = import(&store, &archive[..], &ArchiveSource { name: "archive", tag: None, origin: "test" });
    let error = crate::error::Error::from(error.expect_err("refused"));
    assert!(error.to_string().contains("and the image names"), "{error}");
    assert_eq!((entries(&store, "layers"), entries(&store, "references"), entries(&store, "new")), (0, 0, 0));
    Ok(())
}

#[test]
fn what_was_interrupted_is_not_used_and_is_removed() -> io::Result<()> {
    let (_directory, store) = store();
    let layer = tar(&[("a", b"a")]);
    add(&store, "one", std::slice::from_ref(&layer)).expect("imported");
    // A process that was killed leaves its directory.
    std::mem::forget(store.begin()?.temporary()?);
    assert_eq!(entries(&store, "new"), 1);
    store.collect()?;
    assert_eq!(entries(&store, "new"), 0);
    // A record without its layer counts as missing.
    fs::remove_dir_all(store.layer_path(&Digest::of(&layer)))?;
    assert_eq!(store.find(&image("one"))?, None);
    Ok(())
}

#[test]
fn two_at_once_do_not_disturb_each_other() -> io::Result<()> {
    let (_directory, store) = store();
    let layers: Vec<Vec<u8>> = (0..4_u8).map(|number| tar(&[("file", &[number; 5000])])).collect();
    let barrier = Barrier::new(4);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (store, layers, barrier) = (&store, &layers, &barrier);
            scope.spawn(move || {
                barrier.wait();
                add(store, &format!("image{number}"), layers).expect("imported");
                store.collect().expect("collected");
            });
        }
    });
    assert_eq!((store.list()?.len(), entries(&store, "layers"), entries(&store, "new")), (4, 4, 0));
    Ok(())
}

#[test]
fn a_layer_is_unpacked_within_the_limits_of_its_image() -> io::Result<()> {
    let (_directory, store) = store();
    let addition = store.begin()?;
    let layer = tar(&[("a", &[0; 2000])]);
    let mut unpacker = Unpacker::new(UnpackLimits { bytes: 1000, entries: 10 });
    assert!(addition.add_layer(&layer[..], &Digest::of(&layer), &mut unpacker).is_err());
    assert_eq!((entries(&store, "layers"), entries(&store, "new")), (0, 0));
    Ok(())
}
