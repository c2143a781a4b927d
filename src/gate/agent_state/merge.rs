//! Three-way merges of a file that both the host and the guest may have changed since they had the
//! same content. Pure.

use serde_json::{Map, Value as Json};

/// The new content of both sides; `None` means that the file does not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    pub host: Option<Vec<u8>>,
    pub guest: Option<Vec<u8>>,
    /// Whether both sides changed the same thing, so that the guest's change is dropped.
    pub is_conflict: bool,
}

impl Merged {
    fn both(content: Option<&[u8]>) -> Self {
        Merged { host: content.map(<[u8]>::to_vec), guest: content.map(<[u8]>::to_vec), is_conflict: false }
    }
}

/// Merges content that goes both ways. If both sides changed it, objects of JSON are merged by key
/// and texts that grew at the end are joined; otherwise the host's counts.
pub fn whole(base: Option<&[u8]>, host: Option<&[u8]>, guest: Option<&[u8]>) -> Merged {
    if host == guest || guest == base {
        return Merged::both(host);
    }
    if host == base {
        return Merged::both(guest);
    }
    if let Some(merged) = keys(base, host, guest, |_| true) {
        return merged;
    }
    let start = base.unwrap_or_default();
    if let (Some(host), Some(guest)) = (host, guest.and_then(|guest| guest.strip_prefix(start)))
        && host.starts_with(start)
    {
        return Merged::both(Some(&[host, guest].concat()));
    }
    Merged { is_conflict: true, ..Merged::both(host) }
}

/// Merges content that only goes in: the host's, once it has changed.
pub fn host_only(base: Option<&[u8]>, host: Option<&[u8]>, guest: Option<&[u8]>) -> Merged {
    let guest = if host == base { guest } else { host };
    Merged { host: host.map(<[u8]>::to_vec), guest: guest.map(<[u8]>::to_vec), is_conflict: false }
}

/// Merges objects of JSON by key. Only values at a path that `is_shared` go out. Returns `None` if
/// a side is not an object.
pub fn keys(
    base: Option<&[u8]>,
    host: Option<&[u8]>,
    guest: Option<&[u8]>,
    is_shared: impl Fn(&[&str]) -> bool,
) -> Option<Merged> {
    let object = |content: Option<&[u8]>| -> Option<Json> {
        let value = content.map_or(Some(Json::Object(Map::new())), |content| serde_json::from_slice(content).ok())?;
        value.is_object().then_some(value)
    };
    if let (Some(host), None) = (host, guest) {
        return Some(Merged::both(Some(host)));
    }
    // The base may be from a time when the file was not valid.
    let old = object(base).unwrap_or_else(|| Json::Object(Map::new()));
    let (host_value, guest_value) = (object(host)?, object(guest)?);
    let mut merge = KeyMerge { is_shared: &is_shared, is_conflict: false };
    let (host_new, guest_new) = merge.values(Some(&old), Some(&host_value), Some(&guest_value), &mut Vec::new());
    let text = |new: Option<Json>, old: &Json, content: Option<&[u8]>| match new {
        Some(new) if new != *old => serde_json::to_vec_pretty(&new).ok(),
        _ => content.map(<[u8]>::to_vec),
    };
    Some(Merged {
        host: text(host_new, &host_value, host),
        guest: text(guest_new, &guest_value, guest),
        is_conflict: merge.is_conflict,
    })
}

/// Tells whether a path begins with a pattern such as `projects.*.history`.
pub fn is_below(pattern: &str, path: &[&str]) -> bool {
    let parts: Vec<&str> = pattern.split('.').collect();
    parts.len() <= path.len() && parts.iter().zip(path).all(|(part, name)| *part == "*" || part == name)
}

/// Lists the paths, up to `most`, at which two objects of JSON differ.
pub fn differences(one: &Json, other: &Json, most: usize) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut open = vec![(Vec::new(), Some(one), Some(other))];
    while let (Some((path, one, other)), true) = (open.pop(), found.len() < most) {
        match (one, other) {
            (Some(Json::Object(one)), Some(Json::Object(other))) => {
                for key in names(&[one, other]) {
                    let below = [path.as_slice(), &[key.to_owned()]].concat();
                    open.push((below, one.get(key), other.get(key)));
                }
            }
            (one, other) if one != other => found.push(path),
            _ => {}
        }
    }
    found
}

fn names<'a>(objects: &[&'a Map<String, Json>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    let mut known = std::collections::HashSet::new();
    for name in objects.iter().flat_map(|object| object.keys()) {
        if known.insert(name.as_str()) {
            names.push(name);
        }
    }
    names
}

struct KeyMerge<'f> {
    is_shared: &'f dyn Fn(&[&str]) -> bool,
    is_conflict: bool,
}

impl KeyMerge<'_> {
    /// Returns the new values of the host and of the guest.
    fn values<'a>(
        &mut self,
        base: Option<&'a Json>,
        host: Option<&'a Json>,
        guest: Option<&'a Json>,
        path: &mut Vec<&'a str>,
    ) -> (Option<Json>, Option<Json>) {
        if host == guest {
            return (host.cloned(), guest.cloned());
        }
        let empty = Map::new();
        let members = |value: Option<&'a Json>| value.and_then(Json::as_object);
        match (members(host), members(guest)) {
            (None, None) => self.leaf(base, host, guest, path),
            // A side that lacks the object, or has another value, is merged as if it were empty only
            // if it has none.
            (Some(_), None) if guest.is_some() => self.leaf(base, host, guest, path),
            (None, Some(_)) if host.is_some() => self.leaf(base, host, guest, path),
            (in_host, in_guest) => {
                let (in_host, in_guest) = (in_host.unwrap_or(&empty), in_guest.unwrap_or(&empty));
                let old = members(base);
                let (mut new_host, mut new_guest) = (Map::new(), Map::new());
                let all: Vec<String> = names(&[in_host, in_guest]).into_iter().map(str::to_owned).collect();
                for key in &all {
                    let old = old.and_then(|old| old.get(key));
                    let mut below: Vec<&str> = path.clone();
                    below.push(key);
                    let (one, other) = self.values(old, in_host.get(key), in_guest.get(key), &mut below);
                    new_host.extend(one.map(|value| (key.clone(), value)));
                    new_guest.extend(other.map(|value| (key.clone(), value)));
                }
                let side = |value: Option<&Json>, new: Map<String, Json>| {
                    (value.is_some() || !new.is_empty()).then_some(Json::Object(new))
                };
                (side(host, new_host), side(guest, new_guest))
            }
        }
    }

    fn leaf(
        &mut self,
        base: Option<&Json>,
        host: Option<&Json>,
        guest: Option<&Json>,
        path: &[&str],
    ) -> (Option<Json>, Option<Json>) {
        if !(self.is_shared)(path) {
            let guest = if host == base { guest } else { host };
            return (host.cloned(), guest.cloned());
        }
        let new = if host == base { guest } else { host };
        self.is_conflict |= host != base && guest != base;
        (new.cloned(), new.cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(content: &Option<Vec<u8>>) -> Option<String> {
        content.as_ref().map(|content| String::from_utf8_lossy(content).into_owned())
    }

    fn merged(base: Option<&str>, host: Option<&str>, guest: Option<&str>) -> (Option<String>, bool) {
        let bytes = |text: Option<&'static str>| text.map(str::as_bytes);
        let leak = |text: Option<&str>| text.map(|text| &*Box::leak(text.to_owned().into_boxed_str()));
        let merged = whole(bytes(leak(base)), bytes(leak(host)), bytes(leak(guest)));
        assert_eq!(merged.host, merged.guest);
        (text(&merged.host), merged.is_conflict)
    }

    #[test]
    fn the_side_that_changed_counts() {
        assert_eq!(merged(Some("a"), Some("a"), Some("b")), (Some("b".into()), false));
        assert_eq!(merged(Some("a"), Some("b"), Some("a")), (Some("b".into()), false));
        assert_eq!(merged(Some("a"), Some("a"), None), (None, false));
        assert_eq!(merged(None, None, Some("new")), (Some("new".into()), false));
    }

    #[test]
    fn both_changes_count_if_they_differ_in_place() {
        assert_eq!(merged(Some("1\n"), Some("1\n2\n"), Some("1\n3\n")), (Some("1\n2\n3\n".into()), false));
        let (json, is_conflict) = merged(Some(r#"{"a":1}"#), Some(r#"{"a":1,"b":2}"#), Some(r#"{"a":3}"#));
        let json: Json = serde_json::from_str(&json.unwrap_or_default()).expect("JSON");
        assert_eq!((json, is_conflict), (serde_json::json!({ "a": 3, "b": 2 }), false));
        assert_eq!(merged(Some("a"), Some("b"), Some("c")), (Some("b".into()), true));
    }

    #[test]
    fn keys_that_are_not_shared_stay_inside() {
        let base = r#"{"theme":"dark","projects":{"/a":{"history":[]}}}"#;
        let guest = r#"{"theme":"light","mcpServers":{"x":{"command":"evil"}},"user":"me",
                        "projects":{"/a":{"history":["q"],"mcpServers":{"y":1}},"/b":{"history":["r"],"trust":true}}}"#;
        let shared = ["user", "projects.*.history"];
        let is_shared = |path: &[&str]| shared.iter().any(|pattern| is_below(pattern, path));
        let merged = keys(Some(base.as_bytes()), Some(base.as_bytes()), Some(guest.as_bytes()), is_shared);
        let merged = merged.expect("objects");
        let json = |content: &Option<Vec<u8>>| -> Json {
            serde_json::from_slice(content.as_deref().unwrap_or_default()).expect("JSON")
        };
        assert_eq!(
            json(&merged.host),
            serde_json::json!({ "theme": "dark", "user": "me",
                "projects": { "/a": { "history": ["q"] }, "/b": { "history": ["r"] } } })
        );
        assert_eq!(json(&merged.guest), serde_json::from_str::<Json>(guest).expect("JSON"));
        // The host's change goes in, and a second merge changes nothing.
        let host = r#"{"theme":"high-contrast"}"#;
        let merged =
            keys(Some(br#"{"theme":"dark"}"#), Some(host.as_bytes()), Some(br#"{"theme":"light"}"#), is_shared);
        assert_eq!(merged.map(|merged| json(&merged.guest)), Some(serde_json::json!({ "theme": "high-contrast" })));
    }

    #[test]
    fn differences_are_paths() {
        let one = serde_json::json!({ "a": 1, "b": { "c": 1, "d": 2 } });
        let other = serde_json::json!({ "a": 1, "b": { "c": 3, "d": 2 }, "e": {} });
        let mut found = differences(&one, &other, 9);
        found.sort();
        assert_eq!(found, [vec!["b".to_owned(), "c".to_owned()], vec!["e".to_owned()]]);
    }
}
