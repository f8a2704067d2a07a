//! Integer shares of a GPU that is cut into parts (decision D11).

/// What a whole GPU is, in shares.
pub const SHARES: u32 = 1_000_000;

/// The shares of a GPU's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Of each part, in the order of the parts.
    pub parts: Vec<u32>,
    /// Of what no part has.
    pub remainder: u32,
}

/// Gives each part its share by largest remainder; parts and remainder sum to [`SHARES`]. Of equal
/// remainders the earlier part gets the odd one, and what is left over comes last.
///
/// `slices` are the slices of each part, `whole` those of the GPU. None where the parts are larger
/// than the GPU or it has no slices.
pub fn shares(slices: &[u32], whole: u32) -> Option<Shares> {
    let used = slices.iter().try_fold(0_u32, |sum, part| sum.checked_add(*part))?;
    let left = whole.checked_sub(used)?;
    if whole == 0 {
        return None;
    }
    let weights: Vec<u64> = slices.iter().chain([&left]).map(|&part| u64::from(part)).collect();
    let exact = |weight: u64| (weight * u64::from(SHARES), u64::from(whole));
    let mut given: Vec<u64> = weights.iter().map(|&weight| exact(weight).0 / exact(weight).1).collect();
    let odd = u64::from(SHARES) - given.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|&at| std::cmp::Reverse(exact(weights[at]).0 % exact(weights[at]).1));
    for &at in order.iter().take(usize::try_from(odd).unwrap_or(usize::MAX)) {
        given[at] += 1;
    }
    let mut given = given.into_iter().map(|share| u32::try_from(share).unwrap_or(SHARES));
    let parts = given.by_ref().take(slices.len()).collect();
    Some(Shares { parts, remainder: given.next().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_whole() {
        let check = |slices: &[u32], whole, expect: Option<(&[u32], u32)>| {
            let expect = expect.map(|(parts, remainder)| Shares { parts: parts.to_vec(), remainder });
            assert_eq!(shares(slices, whole), expect, "{slices:?} of {whole}");
        };
        check(&[1; 7], 7, Some((&[142_858, 142_857, 142_857, 142_857, 142_857, 142_857, 142_857], 0)));
        check(&[3, 3], 7, Some((&[428_572, 428_571], 142_857)));
        check(&[3, 2, 1], 7, Some((&[428_572, 285_714, 142_857], 142_857)));
        check(&[1, 1], 4, Some((&[250_000, 250_000], 500_000)));
        check(&[], 7, Some((&[], 1_000_000)));
        check(&[4, 4], 7, None);
        check(&[], 0, None);
        check(&[u32::MAX, 1], 7, None);
    }

    proptest! {
        #[test]
        fn they_sum_to_the_gpu_and_differ_from_the_exact_by_less_than_one(
            slices in proptest::collection::vec(0_u32..20, 0..9),
            spare in 0_u32..9,
        ) {
            let whole = slices.iter().sum::<u32>() + spare;
            prop_assume!(whole > 0);
            let given = shares(&slices, whole).unwrap();
            prop_assert_eq!(given.parts.iter().sum::<u32>() + given.remainder, SHARES);
            for (part, share) in slices.iter().zip(&given.parts) {
                let exact = u64::from(*part) * u64::from(SHARES);
                let given = u64::from(*share) * u64::from(whole);
                prop_assert!(exact.abs_diff(given) < u64::from(whole));
            }
        }
    }
}
