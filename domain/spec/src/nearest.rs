//! "Did you mean": the nearest word by edit distance.

/// The candidate with the fewest edits to `word`, if they are few for its length.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if word.len() > 64 {
        return None;
    }
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    let most = (word.chars().count() / 3).clamp(1, 3);
    // Of equally near words, the one as long as what was typed: letters are swapped more than lost.
    let scored = candidates.into_iter().map(|candidate| {
        (distance(&word, &plain(candidate)), candidate.len().abs_diff(word.len()), candidate)
    });
    scored.filter(|(edits, ..)| *edits <= most).min().map(|(.., candidate)| candidate)
}

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
fn distance(one: &str, other: &str) -> usize {
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    let mut before = vec![0; other.len() + 1];
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for row in 1..=one.len() {
        let mut next = vec![row; other.len() + 1];
        for column in 1..=other.len() {
            let replace = last[column - 1] + usize::from(one[row - 1] != other[column - 1]);
            let mut edits = replace.min(last[column] + 1).min(next[column - 1] + 1);
            let swapped = row > 1
                && column > 1
                && one[row - 1] == other[column - 2]
                && one[row - 2] == other[column - 1];
            if swapped {
                edits = edits.min(before[column - 2] + 1);
            }
            next[column] = edits;
        }
        before = std::mem::replace(&mut last, next);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn near_words() {
        let check = |word, expect| {
            assert_eq!(nearest(word, ["gpus", "gpu", "nodes", "checkpoint"]), expect, "{word}");
        };
        check("gpsu", Some("gpus"));
        check("GPUs", Some("gpus"));
        check("node", Some("nodes"));
        check("checkpiont", Some("checkpoint"));
        check("ram", None);
        check("", None);
    }
}
