//! Rendezvous hashing: everybody who knows the same candidates picks the same one for a key, and a candidate that comes or goes moves
//! only its own keys.

use xxhash_rust::xxh3::xxh3_64;

/// The weight of a candidate for a key: XXH3-64 of `key NUL candidate`. The heaviest candidate has the key.
pub fn weight(key: &str, candidate: &str) -> u64 {
    let mut bytes = Vec::with_capacity(key.len() + 1 + candidate.len());
    bytes.extend_from_slice(key.as_bytes());
    bytes.push(0);
    bytes.extend_from_slice(candidate.as_bytes());
    xxh3_64(&bytes)
}

/// The candidate that has the key, by the name that `name` gives it.
pub fn pick<T>(key: &str, candidates: impl IntoIterator<Item = T>, name: impl Fn(&T) -> &str) -> Option<T> {
    candidates.into_iter().max_by_key(|candidate| weight(key, name(candidate)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(candidates: &[&str]) -> Vec<String> {
        (0..1_000).map(|key| (*pick(&key.to_string(), candidates, |name| name).unwrap()).to_owned()).collect()
    }

    #[test]
    fn a_candidate_that_leaves_moves_only_its_own_keys() {
        let (before, after) = (picks(&["a", "b", "c"]), picks(&["a", "c"]));
        assert!(before.iter().zip(&after).all(|(old, new)| old == new || old == "b"));
        assert!(["a", "b", "c"].iter().all(|name| before.iter().filter(|picked| picked == name).count() > 250));
    }
}
