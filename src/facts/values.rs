//! Values of the rows of a table: all that are known, and what changed. In files, an object with a row's name for each
//! value.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use std::{collections::BTreeMap, fmt, marker::PhantomData};

/// A row of a table.
pub trait Key: Copy + Ord {
    /// Returns its name in files.
    fn name(self) -> &'static str;

    /// Returns the row with this name.
    fn from_name(name: &str) -> Option<Self>;
}

/// Known values. One that is missing is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values<K>(BTreeMap<K, u64>);

/// Values that changed; `None` where a value is not known any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes<K>(BTreeMap<K, Option<u64>>);

impl<K> Default for Values<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K> Default for Changes<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Key> Values<K> {
    /// Returns a value.
    pub fn get(&self, key: K) -> Option<u64> {
        self.0.get(&key).copied()
    }

    /// Sets a value, or removes it.
    pub fn set(&mut self, key: K, value: Option<u64>) {
        match value {
            Some(it) => self.0.insert(key, it),
            None => self.0.remove(&key),
        };
    }

    /// Returns the known rows and their values.
    pub fn iter(&self) -> impl Iterator<Item = (K, u64)> {
        self.0.iter().map(|(key, value)| (*key, *value))
    }

    /// Returns what leads from `before` to this.
    pub fn since(&self, before: &Self) -> Changes<K> {
        let gone = before.0.keys().filter(|it| !self.0.contains_key(it)).map(|it| (*it, None));
        let new = self.iter().filter(|(key, value)| before.get(*key) != Some(*value));
        Changes(new.map(|(key, value)| (key, Some(value))).chain(gone).collect())
    }

    /// Returns everything, so that a reader that has seen nothing knows it too, and what is gone since `before`.
    pub fn whole(&self, before: &Self) -> Changes<K> {
        let mut all = self.since(before);
        all.0.extend(self.iter().map(|(key, value)| (key, Some(value))));
        all
    }

    /// Applies changes.
    pub fn apply(&mut self, changes: &Changes<K>) {
        for (key, value) in &changes.0 {
            self.set(*key, *value);
        }
    }
}

impl<K: Key> FromIterator<(K, u64)> for Values<K> {
    fn from_iter<I: IntoIterator<Item = (K, u64)>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl<K> Changes<K> {
    /// Returns whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Key> From<Values<K>> for Changes<K> {
    fn from(values: Values<K>) -> Self {
        values.since(&Values::default())
    }
}

impl<K: Key> FromIterator<(K, u64)> for Changes<K> {
    fn from_iter<I: IntoIterator<Item = (K, u64)>>(all: I) -> Self {
        Values::from_iter(all).into()
    }
}

impl<K: Key> Serialize for Values<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(key, value)| (key.name(), value)))
    }
}

impl<K: Key> Serialize for Changes<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key.name(), value)))
    }
}

impl<'de, K: Key> Deserialize<'de> for Values<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Changes(all) = Changes::deserialize(from)?;
        Ok(Self(all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()))
    }
}

impl<'de, K: Key> Deserialize<'de> for Changes<K> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Named(PhantomData))
    }
}

/// Reads an object with a value for each name. Skips names that a later release added.
struct Named<K>(PhantomData<K>);

impl<'de, K: Key> Visitor<'de> for Named<K> {
    type Value = Changes<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a value for each name")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Changes<K>, A::Error> {
        let mut all = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            match K::from_name(&name) {
                Some(key) => {
                    all.insert(key, map.next_value()?);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Changes(all))
    }
}
