//! Real programs inside use a key that is outside.

use super::rig::{Rig, VALUE};
use crate::for_every_engine;
use crate::support::{Engine, Fixture, RunToEnd};

for_every_engine!(
    a_key_is_set_outside_and_the_variable_is_a_placeholder,
    a_filtered_network_works_too,
    git_over_https_uses_the_token,
    large_bodies_websockets_and_several_requests_pass,
);

fn a_key_is_set_outside_and_the_variable_is_a_placeholder(fixture: &Fixture) {
    let rig = Rig::start(fixture);
    let script = "echo $A_TEST_KEY; curl -sS -H \"Authorization: Bearer $A_TEST_KEY\" https://api.vendor.example/a; \
                  curl -sS https://other.vendor.example/b -o /dev/null -w '%{http_code} %{ssl_verify_result}\\n'";
    let first = rig.bash(fixture, &[], script);
    let placeholder = first.success().lines().next().expect("a line").to_owned();
    assert!(
        placeholder.starts_with("sk-test-") && placeholder.len() == VALUE.len() && placeholder != VALUE,
        "{placeholder}"
    );
    assert!(!first.stdout.contains(VALUE) && !first.stderr.contains(VALUE), "{first:?}");
    let requests = rig.requests();
    assert!(requests[0].contains(&format!("authorization: Bearer {VALUE}\r\n")), "{requests:?}");
    // The answer repeats the request, with the placeholder in place of the value.
    assert!(first.stdout.contains(&format!("authorization: Bearer {placeholder}")), "{}", first.stdout);
    assert!(!requests[1].contains(VALUE), "another host gets nothing: {}", requests[1]);
    assert_eq!(rig.tunnels(), ["api.vendor.example:443", "other.vendor.example:443"]);
    let second = rig.bash(fixture, &[], "echo $A_TEST_KEY");
    assert_ne!(second.success(), placeholder, "each session has another placeholder");
}

fn a_filtered_network_works_too(fixture: &Fixture) {
    let rig = Rig::start(fixture);
    let script = "curl -sS https://api.vendor.example/a -o /dev/null; curl -sS https://other.vendor.example/ 2>&1 | head -1; true";
    let finished = rig.bash(fixture, &["--allow-host", "api.vendor.example"], script);
    assert!(finished.success().contains("403"), "{}", finished.stdout);
    assert_eq!(rig.requests().len(), 1);
    assert!(rig.requests()[0].contains(VALUE));
    // A host that is bound but not allowed is refused.
    let finished = rig.bash(fixture, &["--allow-host", "other.vendor.example"], script);
    finished.success();
    assert!(finished.stderr.contains("refused connections to api.vendor.example:443"), "{finished:?}");
    assert_eq!(rig.requests().len(), 1);
}

fn git_over_https_uses_the_token(fixture: &Fixture) {
    let rig = Rig::start(fixture);
    let script = "git ls-remote https://github.com/me/app.git 2>&1; echo; test -z \"$(git config credential.helper)\"";
    let bound = ["A_TEST_KEY", "github.com,api.github.com"].join("@");
    let options = ["--secret", bound.as_str()];
    rig.bash(fixture, &options, script).success();
    let requests = rig.requests();
    let basic = "authorization: Basic eC1hY2Nlc3MtdG9rZW46c2stdGVzdC1SZWFsVmFsdWUwMTIzNDU2Nzg5YWJjZGVmWFla\r\n";
    assert!(requests[0].contains("GET /me/app.git/info/refs") && requests[0].contains(basic), "{requests:?}");
}

fn large_bodies_websockets_and_several_requests_pass(fixture: &Fixture) {
    let rig = Rig::start(fixture);
    let script = r#"
        head -c 3000000 /dev/zero >/tmp/zeros
        curl -sS -T /tmp/zeros https://api.vendor.example/count; echo
        curl -sS -H 'Transfer-Encoding: chunked' -T /tmp/zeros https://api.vendor.example/count; echo
        curl -sS 'https://api.vendor.example/big?n=8000000' | wc -c
        curl -sS https://api.vendor.example/1 -o /dev/null https://api.vendor.example/2 -o /dev/null -w '%{num_connects}\n'
        printf 'hello\n' | timeout 20 curl -sS -N --http1.1 -H 'Connection: Upgrade' -H 'Upgrade: websocket' -T. -X GET \
            https://api.vendor.example/socket 2>/dev/null | head -c 400; true"#;
    let finished = rig.bash(fixture, &[], script);
    let lines: Vec<&str> = finished.success().lines().collect();
    assert_eq!(lines[..5], ["3000000", "3000000", "8000000", "1", "0"], "{finished:?}");
}

#[test]
fn a_repository_is_cloned_and_pushed_over_https_with_a_placeholder() {
    Fixture::on(Engine::Native, |fixture| {
        let rig = Rig::start(fixture);
        let served = fixture.outside("served");
        let repository = served.join("me/app.git");
        let init = ["init", "--quiet", "--bare", "--initial-branch=main"];
        fixture.host_command("git").args(init).arg(&repository).finish().success();
        // The server may be another user than the owner.
        std::fs::write(served.join(".gitconfig"), "[safe]\n\tdirectory = *\n").expect("written");
        rig.serve_repositories(served);
        let script = r#"
            cd /tmp && git clone --quiet https://github.com/me/app.git app 2>/dev/null && cd app &&
            echo inside >file && git add file &&
            git -c user.name=me -c user.email=me@mine.example commit --quiet -m inside &&
            git push --quiet origin HEAD:main && git pull --quiet origin main && git log --format=%s &&
            curl -sS -o /dev/null -H "Authorization: token $A_TEST_KEY" https://api.github.com/user"#;
        let bound = ["A_TEST_KEY", "github.com,api.github.com"].join("@");
        let finished = rig.bash(fixture, &["--secret", &bound], script);
        assert_eq!(finished.success().trim(), "inside", "{finished:?}");
        assert!(!finished.stdout.contains(VALUE) && !finished.stderr.contains(VALUE), "{finished:?}");
        assert_eq!(
            fixture
                .host_command("git")
                .arg("-C")
                .arg(&repository)
                .args(["log", "--format=%s", "main"])
                .finish()
                .success()
                .trim(),
            "inside"
        );
        let api = rig.requests().into_iter().find(|request| request.starts_with("GET /user")).expect("a request");
        assert!(api.contains(&format!("authorization: Bearer {VALUE}\r\n")), "{api}");
    });
}
