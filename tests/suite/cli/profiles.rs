//! Tests `profile`: effective values with their origin, new profile files, and schemas for editors.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::Fixture;

fn data(fixture: &Fixture, arguments: &[&str]) -> String {
    let finished = fixture.finish(&mut fixture.sandpen(arguments));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    finished.stdout
}

/// Returns the line of a key, `KEY = VALUE` with its origin as a comment.
fn shown(text: &str, key: &str) -> String {
    let line = text.lines().find(|line| line.trim().trim_start_matches("# ").split([' ', '=']).next() == Some(key));
    line.unwrap_or_else(|| panic!("no {key} in\n{text}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_value_is_shown_with_its_origin() {
    let fixture = Fixture::new().with_recording_docker();
    fixture
        .write_config("git = \"shared\"\nports = [3000]\nnetwork = \"on\"\n[env]\nA = \"file\"\nGH_TOKEN = \"hush\"\n");
    fixture.write(".config/sandpen/profiles/mine.json", r#"{"engine": "docker", "network": "proxied"}"#);
    let file = "config [ROOT]/home/.config/sandpen/config.toml";
    let finished = fixture.finish(fixture.sandpen(["profile", "show"]).env_remove("LLXPRT_SANDBOX"));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    let plain = finished.stdout;
    for (key, line) in [
        ("engine", "engine = \"auto\" # default".to_owned()),
        ("image", "# image # not set".to_owned()),
        ("git", format!("git = \"shared\" # {file}")),
        ("network", format!("network = \"on\" # {file}")),
        ("3000,", format!("3000, # {file}")),
        ("env.A", format!("env.A = \"file\" # {file}")),
        ("env.GH_TOKEN", format!("# env.GH_TOKEN # a secret; {file}")),
        ("resources.pids", "resources.pids = 2048 # default".to_owned()),
        ("mounts", "# mounts # none".to_owned()),
    ] {
        assert_eq!(shown(&plain, key), line);
    }
    assert!(!plain.contains("hush"), "{plain}");
    fixture.write_config("git = \"shared\"");
    let mut command = fixture.sandpen(["profile", "show", "mine"]);
    let finished = fixture.finish(command.env("SANDPEN_ENGINE", "podman").env("SANDBOX_ENV", "A=variable"));
    assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""));
    for (key, line) in [
        ("engine", "engine = \"podman\" # env SANDPEN_ENGINE"),
        ("network", "network = \"proxied\" # profile mine"),
        ("env.A", "env.A = \"variable\" # env SANDBOX_ENV"),
    ] {
        assert_eq!(shown(&finished.stdout, key), line);
    }
}

#[test]
fn profile_show_prints_json() {
    let fixture = Fixture::new().with_recording_docker();
    let text = data(&fixture, &["profile", "show", "tight", "--format", "json"]);
    let json: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["schema"], 1);
    let of = |key: &str| {
        let values = json["values"].as_array().unwrap();
        let value = values.iter().find(|value| value["key"] == key).unwrap_or_else(|| panic!("{key}"));
        (value["value"].clone(), value["from"].as_str().unwrap().to_owned())
    };
    assert_eq!(of("network"), ("off".into(), "profile tight".into()));
    assert_eq!(of("resources.cpus"), (1.into(), "profile tight".into()));
    assert_eq!(of("git"), ("private".into(), "default".into()));
    assert_eq!(of("image"), (Value::Null, "default".into()));
}

#[test]
fn of_a_variable_that_two_layers_set_the_higher_is_shown() {
    let fixture = Fixture::new().with_recording_docker();
    fixture.write_config("env = { A = \"file\", B = \"file\" }");
    for format in ["text", "json"] {
        let finished =
            fixture.finish(fixture.sandpen(["profile", "show", "--format", format]).env("SANDBOX_ENV", "A=variable"));
        assert_eq!(
            (finished.stdout.matches("env.A").count(), finished.stdout.matches("env.B").count()),
            (1, 1),
            "{}",
            finished.stdout
        );
        assert!(finished.stdout.contains("\"variable\""), "{}", finished.stdout);
    }
}

/// The output of `profile show` can be saved as a profile with the same values.
#[test]
fn profile_show_prints_a_valid_profile() {
    let fixture = Fixture::new().with_recording_docker();
    let before = data(&fixture, &["profile", "show", "tight"]);
    fixture.write(".config/sandpen/profiles/kept.toml", &before);
    let after = data(&fixture, &["profile", "show", "kept"]);
    let values = |text: &str| -> Vec<String> {
        text.lines().skip(1).filter_map(|line| line.split("  #").next().map(|line| line.trim().to_owned())).collect()
    };
    assert_eq!(values(&before), values(&after));
}

#[test]
fn a_profile_is_made_to_be_edited_and_never_twice() {
    let fixture = Fixture::new().with_recording_docker();
    let finished = fixture.finish(&mut fixture.sandpen(["profile", "init", "mine", "--from", "tight"]));
    let file = "[ROOT]/home/.config/sandpen/profiles/mine.toml";
    assert_eq!(
        (finished.code, finished.stdout.as_str(), finished.stderr),
        (Some(0), "", format!("sandpen: created {file}: edit it, then `sandpen run --profile mine`\n"))
    );
    let text = fs::read_to_string(fixture.home.join(".config/sandpen/profiles/mine.toml")).unwrap();
    assert!(text.starts_with("#:schema ../schema.json\n"), "{text}");
    assert_eq!(shown(&data(&fixture, &["profile", "show", "mine"]), "network"), "network = \"off\" # profile mine");
    assert!(fs::exists(fixture.home.join(".config/sandpen/schema.json")).unwrap());
    let again = fixture.usage_error(&mut fixture.sandpen(["profile", "init", "mine"]));
    assert!(again.starts_with(&format!("sandpen: error: `{file}` already exists\nhint: ")), "{again}");
    fixture.write(".config/sandpen/profiles/json.json", "{}");
    for (name, message) in [
        ("json", "a profile `json` already exists"),
        ("../x", "`../x` cannot be the name of a profile"),
        (".x", "`.x` cannot be the name of a profile"),
        ("", "`` cannot be the name of a profile"),
    ] {
        let stderr = fixture.usage_error(&mut fixture.sandpen(["profile", "init", name]));
        assert!(stderr.contains(message), "{stderr}");
    }
    let stderr = fixture.usage_error(&mut fixture.sandpen(["profile", "init", "new", "--from", "tihgt"]));
    assert!(stderr.contains("flag --from: there is no profile `tihgt`\nhint: did you mean `tight`?"), "{stderr}");
}

#[test]
fn without_a_name_the_users_own_file_is_made() {
    let fixture = Fixture::new().with_recording_docker();
    let before = data(&fixture, &["profile", "show"]);
    let finished = fixture.finish(&mut fixture.sandpen(["profile", "init"]));
    assert!(
        finished.code == Some(0) && finished.stderr.contains("[ROOT]/home/.config/sandpen/config.toml"),
        "{}",
        finished.stderr
    );
    assert_eq!(data(&fixture, &["profile", "show"]), before, "a new file changes no value");
    let again = fixture.usage_error(&mut fixture.sandpen(["profile", "init"]));
    assert!(again.ends_with("config.toml` already exists\nhint: edit it; nothing was changed\n"), "{again}");
}

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Fails unless the committed file equals the generated text; `UPDATE_GOLDEN=1` rewrites the file.
fn is_current(path: &str, text: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(repository(path), text).unwrap();
    }
    let committed = fs::read_to_string(repository(path)).unwrap_or_default();
    assert!(committed == text, "{path} is out of date: UPDATE_GOLDEN=1 writes it");
}

#[test]
fn the_committed_schemas_are_current() {
    let fixture = Fixture::new().with_recording_docker();
    is_current("docs/schema/config.schema.json", &data(&fixture, &["profile", "schema"]));
    is_current("docs/schema/preset.schema.json", &data(&fixture, &["profile", "schema", "--preset"]));
}

#[test]
fn the_documented_options_are_current() {
    let fixture = Fixture::new().with_recording_docker();
    let page = fs::read_to_string(repository("docs/configuration.md")).unwrap();
    let marks = ["<!-- options: begin, generated -->\n", "<!-- options: end -->\n"];
    let (before, rest) = page.split_once(marks[0]).expect("a mark");
    let (_, after) = rest.split_once(marks[1]).expect("a mark");
    let table = data(&fixture, &["profile", "reference"]);
    is_current("docs/configuration.md", &format!("{before}{}{table}{}{after}", marks[0], marks[1]));
}

struct Schema {
    schemas: boon::Schemas,
    index: boon::SchemaIndex,
}

impl Schema {
    fn of(path: &str) -> Self {
        let schema: Value = serde_json::from_str(&fs::read_to_string(repository(path)).unwrap()).unwrap();
        let mut schemas = boon::Schemas::new();
        let mut compiler = boon::Compiler::new();
        compiler.add_resource("schema.json", schema).unwrap();
        let index = compiler.compile("schema.json", &mut schemas).unwrap();
        Schema { schemas, index }
    }

    fn allows(&self, text: &str) -> bool {
        let value: Value = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
        self.schemas.validate(&value, self.index).is_ok()
    }
}

/// An editor that uses the schema must accept and reject the same files as sandpen.
#[test]
fn the_schema_judges_as_sandpen_does() {
    let fixture = Fixture::new().with_recording_docker();
    let schema = Schema::of("docs/schema/config.schema.json");
    for (text, is_right) in [
        ("", true),
        ("engine = \"docker\"", true),
        ("engine = \"dockr\"", false),
        ("netwrok = \"off\"", false),
        ("ports = [80, \"81\"]", true),
        ("ports = [0]", false),
        ("ports = 80", false),
        ("resources = { cpus = 0.5, memory = \"4g\", pids = 10 }", true),
        ("resources.cpus = -1", false),
        ("resources.pids = 0", false),
        ("resources.memroy = \"1g\"", false),
        ("mounts = [{ from = \"/etc\", to = \"/x\", mode = \"rw\" }]", true),
        ("mounts = [{ to = \"/x\" }]", false),
        ("mounts = [{ from = \"/etc\", mode = \"rx\" }]", false),
        ("env = { A = \"b\", N = 1, T = true }", true),
        ("env = { A = [] }", false),
        ("env = { \"A=B\" = \"c\" }", false),
        ("strict = true", true),
        ("strict = \"yes\"", false),
        ("allowHosts = [\"github.com\"]", true),
        ("\"$schema\" = \"x\"", true),
    ] {
        assert_eq!(schema.allows(text), is_right, "the schema: {text}");
        fixture.write_config(text);
        let finished = fixture.finish(&mut fixture.sandpen(["profile", "show"]));
        assert_eq!(finished.code, Some(if is_right { 0 } else { 2 }), "sandpen: {text}: {}", finished.stderr);
    }
    let preset = Schema::of("docs/schema/preset.schema.json");
    for entry in fs::read_dir(repository("src/config/presets")).unwrap().flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "toml") {
            assert!(preset.allows(&fs::read_to_string(entry.path()).unwrap()), "{:?}", entry.path());
        }
    }
    assert!(!preset.allows("nam = \"x\"") && !preset.allows("name = \"x\"\nsecret = []"));
    for profile in fs::read_dir(repository("src/config/profiles")).unwrap().flatten() {
        assert!(schema.allows(&fs::read_to_string(profile.path()).unwrap()), "{:?}", profile.path());
    }
}
