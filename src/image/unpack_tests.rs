use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use super::*;

/// Builds archives that no well-behaved program writes.
#[derive(Default)]
struct Archive(Vec<u8>);

impl Archive {
    fn entry(self, name: &str, kind: u8, link: &str, content: &[u8]) -> Self {
        self.with_mode(name, kind, link, content, 0o644)
    }

    fn with_mode(mut self, name: &str, kind: u8, link: &str, content: &[u8], mode: u32) -> Self {
        self.header(name, kind, link, content.len() as u64, mode);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn header(&mut self, name: &str, kind: u8, link: &str, size: u64, mode: u32) {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.as_old_mut().linkflag = [kind];
        header.set_size(size);
        header.set_mode(mode);
        header.set_mtime(1_000_000_000);
        header.set_uid(77);
        header.set_gid(88);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
    }

    fn file(self, name: &str, content: &str) -> Self {
        self.entry(name, b'0', "", content.as_bytes())
    }

    fn directory(self, name: &str) -> Self {
        self.with_mode(name, b'5', "", b"", 0o755)
    }

    fn symlink(self, name: &str, to: &str) -> Self {
        self.entry(name, b'2', to, b"")
    }

    fn hard_link(self, name: &str, to: &str) -> Self {
        self.entry(name, b'1', to, b"")
    }

    fn unpack(&self) -> (tempfile::TempDir, io::Result<()>) {
        self.unpack_within(UnpackLimits { bytes: 1 << 20, entries: 1000 })
    }

    fn unpack_within(&self, limits: UnpackLimits) -> (tempfile::TempDir, io::Result<()>) {
        // Not in memory, where ordinary users' overlays need a new kernel.
        let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
        fs::create_dir(directory.path().join("layer")).expect("directory");
        fs::write(directory.path().join("secret"), "secret").expect("file");
        let result = Unpacker::new(limits).unpack(&self.0[..], &directory.path().join("layer"));
        (directory, result)
    }

    /// Unpacks, and returns why that fails. Nothing may have appeared beside the layer.
    #[track_caller]
    fn refusal(&self) -> String {
        let (directory, result) = self.unpack();
        let error = result.expect_err("it is refused").to_string();
        only_the_layer(directory.path());
        error
    }
}

#[track_caller]
fn only_the_layer(directory: &Path) {
    let mut names: Vec<_> =
        fs::read_dir(directory).expect("list").map(|entry| entry.expect("entry").file_name()).collect();
    names.sort();
    assert_eq!(names, ["layer", "secret"]);
    assert_eq!(fs::read_to_string(directory.join("secret")).expect("secret"), "secret");
}

#[test]
fn files_keep_content_mode_and_time_and_lose_owner_and_set_id_bits() -> io::Result<()> {
    let archive = Archive::default()
        .directory("./")
        .with_mode("tmp/", b'5', "", b"", 0o1777)
        .with_mode("bin/su", b'0', "", b"program", 0o6755)
        .with_mode("etc/shadow", b'0', "", b"x", 0o000)
        .with_mode("closed/", b'5', "", b"", 0o000)
        .symlink("sh", "bin/su")
        .hard_link("bin/sudo", "bin/su");
    let (directory, result) = archive.unpack();
    result?;
    let layer = directory.path().join("layer");
    let mode = |name: &str| fs::symlink_metadata(layer.join(name)).map(|meta| meta.mode() & 0o7777);
    assert_eq!(mode("tmp")?, 0o1777);
    assert_eq!(mode("bin/su")?, 0o755);
    assert_eq!(mode("etc/shadow")?, 0o600);
    assert_eq!(mode("closed")?, 0o700);
    let meta = fs::metadata(layer.join("bin/su"))?;
    assert_eq!((meta.uid(), meta.mtime(), meta.nlink()), (rustix::process::getuid().as_raw(), 1_000_000_000, 2));
    assert_eq!(fs::read_link(layer.join("sh"))?, Path::new("bin/su"));
    assert_eq!(fs::metadata(layer.join("tmp"))?.mtime(), 1_000_000_000);
    Ok(())
}

#[test]
fn attack_32_absolute_names_are_names_in_the_image() -> io::Result<()> {
    let (directory, result) = Archive::default().file("/etc/passwd", "root").file("//a/./b", "b").unpack();
    result?;
    only_the_layer(directory.path());
    assert_eq!(fs::read_to_string(directory.path().join("layer/etc/passwd"))?, "root");
    assert_eq!(fs::read_to_string(directory.path().join("layer/a/b"))?, "b");
    Ok(())
}

#[test]
fn attack_32_names_upwards_are_refused() {
    for name in ["../secret", "a/../../secret", "..", "a/.."] {
        let refusal = Archive::default().directory("a/").file(name, "x").refusal();
        assert!(refusal.contains("leads out of the image"), "{name}: {refusal}");
    }
    for name in [".wh...", ".wh.", ".wh..", "a/.wh..."] {
        let refusal = Archive::default().directory("a/").file(name, "").refusal();
        assert!(refusal.contains("removes a directory as a whole"), "{name}: {refusal}");
    }
}

#[test]
fn attack_32_links_lead_nowhere_else() -> io::Result<()> {
    // A file below a link to the outside lands inside the layer, or nowhere.
    for to in ["..", "../..", "/", "/etc", "../secret", "/proc/self/root"] {
        let archive = Archive::default().symlink("link", to).file("link/secret", "planted");
        let (directory, _) = archive.unpack();
        only_the_layer(directory.path());
        let (directory, _) = Archive::default().symlink("link", to).directory("link/new").unpack();
        only_the_layer(directory.path());
        let (directory, _) = Archive::default().symlink("link", to).file("link/.wh.secret", "").unpack();
        only_the_layer(directory.path());
    }
    // A file that replaces a link does not write through it.
    let (directory, result) = Archive::default().symlink("x", "../secret").file("x", "planted").unpack();
    result?;
    only_the_layer(directory.path());
    assert!(directory.path().join("layer/x").symlink_metadata()?.is_file());
    // A link of the layer to one of its directories is followed.
    let archive = Archive::default().directory("usr/lib/").symlink("lib", "usr/lib").file("lib/a", "a");
    let (directory, result) = archive.unpack();
    result?;
    assert!(directory.path().join("layer/usr/lib/a").is_file());
    Ok(())
}

#[test]
fn attack_32_hard_links_stay_in_the_layer() {
    for to in ["../secret", "a/../../secret"] {
        let refusal = Archive::default().hard_link("x", to).refusal();
        assert!(refusal.contains("is a link out of the image"), "{to}: {refusal}");
    }
    for to in ["secret", "/etc/passwd", "missing"] {
        let refusal = Archive::default().hard_link("x", to).refusal();
        assert!(refusal.contains("does not have"), "{to}: {refusal}");
    }
    let refusal = Archive::default().symlink("out", "..").hard_link("x", "out/secret").refusal();
    assert!(refusal.contains("does not have"), "{refusal}");
    let refusal = Archive::default().directory("d/").hard_link("x", "d").refusal();
    assert!(refusal.contains("hard link to a directory"), "{refusal}");
    // Writing to one name of a file later must not change the other.
    let archive = Archive::default().file("a", "first").hard_link("b", "a").file("b", "second").hard_link("a", "a");
    let (directory, result) = archive.unpack();
    result.expect("unpacked");
    assert_eq!(fs::read_to_string(directory.path().join("layer/a")).expect("file"), "first");
}

#[test]
fn attack_32_devices_are_left_out() -> io::Result<()> {
    let archive =
        Archive::default().entry("dev/sda", b'4', "", b"").entry("dev/mem", b'3', "", b"").entry("pipe", b'6', "", b"");
    let (directory, result) = archive.unpack();
    result?;
    let layer = directory.path().join("layer");
    assert_eq!(fs::read_dir(layer.join("dev"))?.count(), 0);
    assert!(fs::symlink_metadata(layer.join("pipe"))?.file_type().is_fifo());
    Ok(())
}

#[test]
fn whiteouts_become_those_of_overlays() -> io::Result<()> {
    let archive = Archive::default()
        .file("a/.wh.gone", "")
        .directory("b/")
        .file("b/.wh..wh..opq", "")
        .directory("c/")
        .file(".wh.c", "")
        .file(".wh.d", "")
        .directory("d/")
        .file(".wh.e", "")
        .file("e", "again")
        .file(".wh..wh.plnk/x", "");
    let (directory, result) = archive.unpack();
    result?;
    let layer = directory.path().join("layer");
    let is_whiteout = |name: &str| {
        let meta = fs::symlink_metadata(layer.join(name));
        meta.is_ok_and(|meta| meta.file_type().is_char_device() && meta.rdev() == 0)
    };
    let is_opaque = |name: &str| {
        let mut value = [0; 8];
        rustix::fs::getxattr(layer.join(name), c"user.overlay.opaque", &mut value[..])
            .is_ok_and(|length| value[..length] == *b"y")
    };
    assert!(is_whiteout("a/gone") && !is_whiteout("e"));
    assert!(is_opaque("b") && is_opaque("c") && is_opaque("d"));
    assert!(!is_opaque("a"));
    assert_eq!(fs::read_to_string(layer.join("e"))?, "again");
    assert!(!layer.join("b/.wh..wh..opq").exists());
    Ok(())
}

#[test]
fn duplicate_names_end_as_the_last_of_them() -> io::Result<()> {
    let archive = Archive::default()
        .file("a", "file")
        .directory("a/")
        .file("a/below", "x")
        .file("b/c/d", "x")
        .file("b", "file")
        .symlink("c", "b")
        .directory("c/");
    let (directory, result) = archive.unpack();
    result?;
    let layer = directory.path().join("layer");
    assert!(layer.join("a/below").is_file());
    assert_eq!(fs::read_to_string(layer.join("b"))?, "file");
    assert!(fs::symlink_metadata(layer.join("c"))?.is_dir());
    Ok(())
}

#[test]
fn attack_32_bombs_end_at_the_limits() {
    let limits = UnpackLimits { bytes: 1000, entries: 3 };
    let (_directory, result) =
        Archive::default().file("a", &"x".repeat(600)).file("b", &"x".repeat(600)).unpack_within(limits);
    assert_eq!(result.expect_err("too large").to_string(), "the image unpacks to more than 1000 bytes (at `b`)");
    let mut archive = Archive::default();
    for name in ["a", "b", "c", "d"] {
        archive = archive.file(name, "");
    }
    let (_directory, result) = archive.unpack_within(limits);
    assert_eq!(result.expect_err("too many").to_string(), "the image unpacks to more than 3 files");
    // A size alone makes no file of that size.
    let mut huge = Archive::default();
    huge.header("huge", b'0', "", 1 << 50, 0o644);
    assert!(huge.refusal().contains("unpacks to more than"));
    let mut huge = Archive::default();
    huge.header("name", b'L', "", 1 << 30, 0o644);
    assert_eq!(huge.refusal(), "the archive contains a name of 1073741824 bytes");
    let mut huge = Archive::default();
    huge.header("pax", b'x', "", 1 << 40, 0o644);
    assert_eq!(huge.refusal(), "the archive contains an extended header of 1099511627776 bytes");
}

#[test]
fn attack_32_deep_directories_are_refused() {
    let deep = "d/".repeat(201);
    let refusal = Archive::default().entry("long", b'L', "", deep.as_bytes()).directory("x").refusal();
    assert!(refusal.contains("is too deep"), "{refusal}");
    // Links must not help either.
    let half = "d/".repeat(150);
    let archive = Archive::default()
        .entry("long", b'L', "", half.as_bytes())
        .directory("x")
        .entry("long", b'K', "", half.as_bytes())
        .symlink("link", "x")
        .entry("long", b'L', "", format!("link/{half}").as_bytes())
        .directory("x")
        .entry("long", b'L', "", format!("link/{half}file").as_bytes())
        .file("x", "");
    let refusal = archive.refusal();
    assert!(refusal.contains("is too deep"), "{refusal}");
}

#[test]
fn sparse_files_and_unknown_types_are_refused() {
    assert!(Archive::default().entry("s", b'S', "", b"").refusal().contains("sparse"));
    let pax = b"22 GNU.sparse.major=1\n";
    assert!(Archive::default().entry("p", b'x', "", pax).file("s", "").refusal().contains("sparse"));
    assert!(Archive::default().entry("v", b'V', "", b"").refusal().contains("unknown type `V`"));
}

#[test]
fn extended_headers_name_files_and_are_checked() -> io::Result<()> {
    let pax = b"13 path=name\n20 mtime=1234567890\n10 a=b=c\n\n";
    let (directory, result) = Archive::default().entry("p", b'x', "", pax).file("x", "content").unpack();
    result?;
    assert_eq!(fs::metadata(directory.path().join("layer/name"))?.mtime(), 1_234_567_890);
    for pax in ["x", "5", "99 path=x\n", "0 path=x\n", "3 =\n", "12 path=../x\n", "11 path=a\0b\n"] {
        Archive::default().entry("p", b'x', "", pax.as_bytes()).file("x", "").refusal();
    }
    Ok(())
}

#[test]
fn archives_that_end_early_are_errors() {
    let archive = Archive::default().file("a", &"x".repeat(1000));
    for length in [100, 512, 600, 1400] {
        assert!(!Archive(archive.0[..length].to_vec()).refusal().is_empty(), "{length}");
    }
    let mut broken = archive.0.clone();
    broken[0] ^= 1;
    assert!(Archive(broken).refusal().contains("wrong checksum"));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Random names and types never reach anything beside the layer.
    #[test]
    fn attack_32_no_archive_leaves_its_layer(
        entries in proptest::collection::vec((
            proptest::sample::select(vec!["a", "a/b", "../x", "/x", "l/y", "l", ".wh.a", "a/.wh..wh..opq", "l/../z", "a/b/c", ".", ""]),
            proptest::sample::select(vec![b'0', b'1', b'2', b'5', b'6', b'3', b'L', b'x']),
            proptest::sample::select(vec!["..", "a", "/", "../secret", "l", "a/b", "", "../.."]),
        ), 0..12)
    ) {
        let archive = entries.iter().fold(Archive::default(), |archive, (name, kind, link)| archive.entry(name, *kind, link, b""));
        let (directory, _) = archive.unpack();
        only_the_layer(directory.path());
        let _ = fs::set_permissions(directory.path().join("layer"), fs::Permissions::from_mode(0o755));
    }
}
