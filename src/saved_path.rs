//! Saves paths and contents of files that need not be UTF-8, which serde refuses: as text if they
//! are, otherwise as bytes. Use it as `#[serde(with = "crate::saved_path")]`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A type that contains paths or bytes.
pub trait Saved: Sized {
    fn save<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;
    fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

pub fn serialize<T: Saved, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.save(serializer)
}

pub fn deserialize<'de, T: Saved, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::load(deserializer)
}

struct SaveRef<'a, T>(&'a T);

impl<T: Saved> Serialize for SaveRef<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.save(serializer)
    }
}

struct Load<T>(T);

impl<'de, T: Saved> Deserialize<'de> for Load<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::load(deserializer).map(Load)
    }
}

fn save_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => serializer.collect_seq(bytes),
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Vec<u8>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text or bytes")
    }

    fn visit_str<E>(self, text: &str) -> Result<Vec<u8>, E> {
        Ok(text.as_bytes().to_vec())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Vec<u8>, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = sequence.next_element()? {
            bytes.push(byte);
        }
        Ok(bytes)
    }
}

impl Saved for Vec<u8> {
    fn save<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        save_bytes(self, serializer)
    }

    fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(BytesVisitor)
    }
}

impl Saved for PathBuf {
    fn save<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        save_bytes(self.as_os_str().as_bytes(), serializer)
    }

    fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::load(deserializer).map(|bytes: Vec<u8>| OsString::from_vec(bytes).into())
    }
}

impl<T: Saved> Saved for Option<T> {
    fn save<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(SaveRef).serialize(serializer)
    }

    fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<Load<T>>::deserialize(deserializer)?.map(|loaded| loaded.0))
    }
}

impl<T: Saved> Saved for Vec<T> {
    fn save<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(SaveRef))
    }

    fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Load<T>>::deserialize(deserializer)?.into_iter().map(|loaded| loaded.0).collect())
    }
}

impl<T: Saved, U: Serialize + for<'de> Deserialize<'de>> Saved for (T, U) {
    fn save<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (SaveRef(&self.0), &self.1).serialize(serializer)
    }

    fn load<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <(Load<T>, U)>::deserialize(deserializer).map(|(first, second)| (first.0, second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    struct Paths {
        #[serde(with = "super")]
        one: PathBuf,
        #[serde(with = "super")]
        maybe: Option<PathBuf>,
        #[serde(with = "super")]
        pairs: Vec<(PathBuf, u32)>,
    }

    #[test]
    fn paths_that_are_not_text_are_saved() -> Result<(), serde_json::Error> {
        let odd = || PathBuf::from(OsString::from_vec(b"b\xff".to_vec()));
        let paths = Paths { one: odd(), maybe: Some("text".into()), pairs: vec![(odd(), 1), ("x".into(), 2)] };
        let saved = serde_json::to_string(&paths)?;
        assert_eq!(saved, r#"{"one":[98,255],"maybe":"text","pairs":[[[98,255],1],["x",2]]}"#);
        assert_eq!(serde_json::from_str::<Paths>(&saved)?, paths);
        let none = Paths::default();
        assert_eq!(serde_json::from_str::<Paths>(&serde_json::to_string(&none)?)?, none);
        Ok(())
    }
}
