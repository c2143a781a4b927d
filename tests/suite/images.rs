//! Tests images without an engine: archives, registries, and what a native sandbox sees of an image.

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Engine, Fixture, RunToEnd, SYSTEM_PATH, holds_within};

/// A small image with the programs of busybox, and without an account.
const IMAGE: &str = "localhost/sandpen-busybox:latest";

/// A bcrypt hash of `hunter2`.
const HASH: &str = "$2b$05$abcdefghijklmnopqrstuuoXuKqgZXLiJqzfmMXDDhSFPIvxV7t8.";
/// `me:hunter2`.
const LOGIN: &str = "bWU6aHVudGVyMg==";

/// Runs a test on the native engine, as an ordinary user and as root, with an archive of the test
/// image.
#[track_caller]
fn with_archive(test: impl Fn(&Fixture, &Path)) {
    if !Engine::Docker.is_available() {
        return;
    }
    for engine in [Engine::Native, Engine::NativeRoot] {
        Fixture::on(engine, |fixture| {
            let archive = fixture.outside("archives").join("image.tar");
            docker(&["save", "-o", &archive.display().to_string(), IMAGE]);
            fixture.give_to_user(&archive);
            test(fixture, &archive);
        });
    }
}

fn docker(arguments: &[&str]) {
    let output = Command::new("docker").args(arguments).output().expect("docker");
    assert!(output.status.success(), "docker {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn import(fixture: &Fixture, archive: &Path) -> String {
    let mut command = fixture.sandpen(["image", "import"]);
    command.arg(archive).finish().success().to_owned()
}

/// Runs a script in the image.
fn in_image(fixture: &Fixture, options: &[&str], script: &str) -> crate::support::Finished {
    let mut command = fixture.command("run");
    command.args(["--image", IMAGE]).args(options).args(["--", "sh", "-c", script]).finish()
}

#[test]
fn an_imported_image_is_the_root_of_a_native_sandbox() {
    with_archive(|fixture, archive| {
        assert_eq!(import(fixture, archive), IMAGE);
        let listed = fixture.sandpen(["image", "list", "--format", "json"]).finish().json();
        assert_eq!(listed[0]["reference"], IMAGE);
        assert_eq!(listed[0]["platform"].as_str().map(|platform| platform.starts_with("linux/")), Some(true));
        fs::write(fixture.project.join("file"), "content").expect("file");
        // The image's system, the workspace, a home and an account of the user.
        let script = "cat file; id -u; id -un; pwd; echo $HOME; test -w $HOME; test ! -e /root/.ssh; \
            touch /bin/mine /etc/mine && echo private";
        let uid = fixture.uid.to_string();
        let expected = [
            "content".into(),
            format!("{uid}\n{}", fixture.user_name()),
            fixture.project.display().to_string(),
            fixture.home.display().to_string(),
            "private".into(),
        ];
        let said = in_image(fixture, &[], script).success().to_owned();
        assert_eq!(said.replace("content", "content\n"), expected.join("\n"));
        // What a sandbox writes is its own.
        assert_eq!(in_image(fixture, &[], "ls /bin/mine /etc/mine 2>&1 | grep -c 'No such'").success(), "2");
        assert!(!Path::new("/bin/mine").exists() && !Path::new("/etc/mine").exists());
        assert_eq!(fixture.sessions(), Vec::<PathBuf>::new());
    });
}

#[test]
fn the_image_covers_the_programs_and_settings_of_the_host() {
    with_archive(|fixture, archive| {
        import(fixture, archive);
        // The image has no compiler. Its `/dev` is not used, and sandpen writes the host name.
        let script = "test -e /usr/bin/cc || echo no compiler; cat /etc/hostname; ls /dev | sort | tr '\\n' ' '";
        let said = in_image(fixture, &[], script).success().to_owned();
        let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("name");
        assert!(said.starts_with(&format!("no compiler\n{}", host.trim())), "{said}");
        assert!(said.ends_with("fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"), "{said}");
        let explained = fixture.explain(&["--image", IMAGE]).to_string();
        assert!(explained.contains("in sandpen's store"), "{explained}");
    });
}

#[test]
fn the_walls_of_native_stand_around_an_image() {
    with_archive(|fixture, archive| {
        import(fixture, archive);
        let script = "
            mount -t tmpfs x /tmp 2>/dev/null && echo mounted
            unshare -m true 2>/dev/null && echo unshared
            mknod /node b 8 0 2>/dev/null && echo device
            cp /bin/true /suid && chmod u+s /suid 2>/dev/null && echo suid
            cat /proc/1/environ 2>/dev/null | tr '\\0' '\\n' | grep -c SANDPEN
            grep -c . /proc/self/status >/dev/null && grep CapEff /proc/self/status
            ls /proc | grep -c '^[0-9]*$'
            echo x >/proc/sys/kernel/core_pattern";
        let said = in_image(fixture, &["--network", "off"], script);
        for gained in ["mounted", "unshared", "device", "suid"] {
            assert!(!said.stdout.contains(gained), "{}", said.stdout);
        }
        assert!(said.stdout.contains("CapEff:\t0000000000000000"), "{}", said.stdout);
        assert_ne!(said.code, Some(0));
        let exit = in_image(fixture, &[], "exit 7");
        assert_eq!(exit.code, Some(7));
    });
}

#[test]
fn the_user_of_the_image_is_the_users_own() {
    with_archive(|fixture, archive| {
        import(fixture, archive);
        let script = "id -u; echo $HOME; touch made; mkdir -p /opt/new && chown 0:0 /opt/new && echo owned";
        assert_eq!(in_image(fixture, &["--user", "image"], script).success(), "0\n/root\nowned");
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(fixture.project.join("made")).expect("made").uid(), fixture.uid);
    });
}

#[test]
fn images_are_removed_with_their_layers() {
    with_archive(|fixture, archive| {
        import(fixture, archive);
        let layers = || fs::read_dir(fixture.home.join(".local/state/sandpen/images/layers")).expect("layers").count();
        assert!(layers() > 0);
        let removed = fixture.sandpen(["image", "rm", IMAGE]).finish();
        assert_eq!((removed.code, layers()), (Some(0), 0), "{}", removed.stderr);
        let again = fixture.sandpen(["image", "rm", IMAGE]).finish();
        assert_eq!(again.code, Some(1));
        assert!(again.stderr.contains(&format!("there is no image `{IMAGE}`")), "{}", again.stderr);
        assert_eq!(fixture.sandpen(["image", "list"]).finish().success(), "");
    });
}

#[test]
fn run_takes_an_image_from_the_engine_that_has_it() {
    if !Engine::Docker.is_available() {
        return;
    }
    Fixture::on(Engine::NativeRoot, |fixture| {
        let first = in_image(fixture, &[], "echo ran");
        assert_eq!(first.success(), "ran");
        assert!(first.stderr.contains(&format!("taking {IMAGE} from Docker")), "{}", first.stderr);
        let second = in_image(fixture, &[], "echo ran");
        assert_eq!((second.success(), second.stderr.as_str()), ("ran", ""));
    });
}

#[test]
fn attack_32_archives_with_tricks_leave_nothing_behind() {
    Fixture::on(Engine::Native, |fixture| {
        let outside = fixture.outside("archives");
        let write = |name: &str, content: &[u8]| {
            let path = outside.join(name);
            File::create(&path).and_then(|mut file| file.write_all(content)).expect("archive");
            fixture.give_to_user(&path);
            path
        };
        let digest = "0".repeat(64);
        let manifest =
            |config: &str, layer: &str| format!(r#"[{{"Config":"{config}","RepoTags":["x:1"],"Layers":["{layer}"]}}]"#);
        let config = format!(r#"{{"os":"linux","architecture":"amd64","rootfs":{{"diff_ids":["sha256:{digest}"]}}}}"#);
        for (name, entries, expected) in [
            ("empty", vec![], "no tar archive, or an empty one"),
            ("upwards", vec![("../x", "x".to_owned())], "leads out of the archive"),
            ("unknown", vec![("file", "x".into())], "contains neither"),
            ("missing", vec![("manifest.json", manifest("none", "none"))], "the file `none` is missing"),
            ("outside", vec![("manifest.json", manifest("../../etc/passwd", "x"))], "leads out of the archive"),
            ("json", vec![("manifest.json", "[".into())], "`manifest.json`"),
            (
                "digest",
                vec![("manifest.json", manifest("c", "l")), ("c", config.clone()), ("l", String::new())],
                "the image names",
            ),
        ] {
            let path = write(name, &tar(&entries));
            let finished = fixture.sandpen(["image", "import"]).arg(&path).finish();
            assert_eq!(finished.code, Some(1), "{name}: {}", finished.stderr);
            assert!(finished.stderr.contains(expected), "{name}: {}", finished.stderr);
        }
        assert_eq!(fixture.sandpen(["image", "list"]).finish().success(), "");
        let store = fixture.home.join(".local/state/sandpen/images");
        for name in ["layers", "new", "references"] {
            assert_eq!(fs::read_dir(store.join(name)).expect("store").count(), 0, "{name}");
        }
        assert!(!store.join("x").exists() && !fixture.home.join("x").exists());
    });
}

/// Writes a tar archive with names that no `tar` would write.
fn tar(entries: &[(&str, String)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in entries {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        archive.extend_from_slice(&header);
        archive.extend_from_slice(content.as_bytes());
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

/// A real registry on a port of this machine.
struct Registry {
    process: Child,
    port: u16,
    directory: tempfile::TempDir,
}

impl Registry {
    /// `None` if the program is not installed.
    fn start(has_login: bool) -> Option<Self> {
        if !Path::new("/usr/bin/docker-registry").exists() || !Engine::Docker.is_available() {
            return None;
        }
        let directory = tempfile::tempdir_in("/var/tmp").expect("directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("port").port();
        let place = directory.path().display();
        let auth = if has_login {
            format!("auth: {{htpasswd: {{realm: test, path: {place}/users}}}}\n")
        } else {
            String::new()
        };
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {place}/data}}}}\n\
             http: {{addr: '127.0.0.1:{port}'}}\n{auth}"
        );
        fs::write(directory.path().join("config.yml"), config).expect("configuration");
        fs::write(directory.path().join("users"), format!("me:{HASH}\n")).expect("users");
        let client = format!(r#"{{"auths":{{"127.0.0.1:{port}":{{"auth":"{LOGIN}"}}}}}}"#);
        fs::write(directory.path().join("config.json"), client).expect("login");
        let mut command = Command::new("/usr/bin/docker-registry");
        command.arg("serve").arg(directory.path().join("config.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("registry");
        let registry = Registry { process, port, directory };
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(holds_within(crate::support::TIMEOUT, answers), "the registry does not answer");
        registry.push();
        Some(registry)
    }

    fn image(&self) -> String {
        format!("127.0.0.1:{}/team/tool:1", self.port)
    }

    fn push(&self) {
        let image = self.image();
        docker(&["tag", IMAGE, &image]);
        docker(&["--config", &self.directory.path().display().to_string(), "push", "--quiet", &image]);
        docker(&["rmi", &image]);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn images_are_pulled_from_a_registry_and_run() {
    let Some(registry) = Registry::start(false) else { return };
    Fixture::on(Engine::Native, |fixture| {
        let image = registry.image();
        let pulled = fixture.sandpen(["image", "pull", &image]).finish();
        assert_eq!(pulled.success(), image);
        let listed = fixture.sandpen(["image", "list", "--format", "json"]).finish().json();
        let digest = listed[0]["digest"].as_str().expect("digest").to_owned();
        // By digest, `run` pulls what is missing; the layers are there already.
        let by_digest = format!("{}@{digest}", image.trim_end_matches(":1"));
        let mut run = fixture.command("run");
        let ran = run.args(["--image", &by_digest, "--", "sh", "-c", "echo ran"]).finish();
        assert_eq!(ran.success(), "ran");
        assert!(ran.stderr.contains(&format!("pulling {by_digest}")), "{}", ran.stderr);
        let missing = fixture.sandpen(["image", "pull", &image.replace("tool", "none")]).finish();
        missing.failure(44);
        assert!(missing.stderr.contains("the registry has no image"), "{}", missing.stderr);
        let wrong = by_digest.replace(&digest[7..12], "00000");
        fixture.sandpen(["image", "pull", &wrong]).finish().failure(44);
    });
}

#[test]
fn a_registry_with_a_login_gets_the_one_of_docker() {
    let Some(registry) = Registry::start(true) else { return };
    Fixture::on(Engine::Native, |fixture| {
        let image = registry.image();
        let denied = fixture.sandpen(["image", "pull", &image]).finish();
        denied.failure(44);
        assert!(denied.stderr.contains("denies access") && denied.stderr.contains("hint: log in"), "{}", denied.stderr);
        let login = fs::read_to_string(registry.directory.path().join("config.json")).expect("login");
        fs::create_dir_all(fixture.home.join(".docker")).expect("directory");
        fs::write(fixture.home.join(".docker/config.json"), login).expect("login");
        fixture.give_to_user(fixture.home.join(".docker"));
        fixture.give_to_user(fixture.home.join(".docker/config.json"));
        assert_eq!(fixture.sandpen(["image", "pull", &image]).finish().success(), image);
        // A credential helper is asked with the registry's name.
        fixture.sandpen(["image", "rm", &image]).finish().success();
        let registry = image.split('/').next().expect("a registry");
        fixture.write(".docker/config.json", &format!(r#"{{"credHelpers":{{"{registry}":"test"}}}}"#));
        let answer = r#"{"ServerURL":"x","Username":"me","Secret":"hunter2"}"#;
        let script = format!("#!/bin/sh\nread -r asked; [ \"$1 $asked\" = 'get {registry}' ] && echo '{answer}'\n");
        fixture.write_script("bin/docker-credential-test", &script);
        let mut pull = fixture.sandpen(["image", "pull", &image]);
        pull.env("PATH", format!("{}:{SYSTEM_PATH}", fixture.home.join("bin").display()));
        let pulled = pull.finish();
        assert_eq!(pulled.success(), image);
        assert!(!pulled.stderr.contains("hunter2"), "{}", pulled.stderr);
    });
}

#[test]
fn a_changed_layer_in_a_registry_is_refused_and_a_cut_one_continued() {
    let Some(registry) = Registry::start(false) else { return };
    Fixture::on(Engine::Native, |fixture| {
        let image = registry.image();
        let blobs = registry.directory.path().join("data/docker/registry/v2/blobs/sha256");
        let mut largest: Option<(u64, PathBuf)> = None;
        for prefix in fs::read_dir(&blobs).expect("blobs").flatten() {
            for blob in fs::read_dir(prefix.path()).expect("blobs").flatten() {
                let data = blob.path().join("data");
                let size = fs::metadata(&data).expect("blob").len();
                if largest.as_ref().is_none_or(|(other, _)| size > *other) {
                    largest = Some((size, data));
                }
            }
        }
        let (_, data) = largest.expect("a blob");
        let content = fs::read(&data).expect("blob");
        let mut changed = content.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        fs::write(&data, &changed).expect("blob");
        let refused = fixture.sandpen(["image", "pull", &image]).finish();
        refused.failure(44);
        assert!(refused.stderr.contains("in place of the layer"), "{}", refused.stderr);
        assert_eq!(fixture.sandpen(["image", "list"]).finish().success(), "");
        fs::write(&data, &content).expect("blob");
        // What an interrupted pull has downloaded is not downloaded again: a wrong start would show.
        let name = data.parent().and_then(Path::file_name).expect("digest");
        let download = fixture.home.join(".local/state/sandpen/images/downloads").join(name);
        fs::write(&download, &content[..middle]).expect("download");
        fixture.give_to_user(&download);
        assert_eq!(fixture.sandpen(["image", "pull", &image]).finish().success(), image);
        assert!(!download.exists());
    });
}
