//! The `#SBATCH` lines of a script: whatever is said of them can be shown, and flags have a name.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../app/cli/src/gpus.rs"]
mod gpus;
#[expect(dead_code, reason = "tests of the module use all of it")]
#[path = "../../app/cli/src/sbatch.rs"]
mod sbatch;

fuzz_target!(|script: &str| {
    let notes = match sbatch::read(script) {
        Ok(script) => {
            assert!(script.flags.iter().all(|flag| flag.starts_with('-')), "{:?}", script.flags);
            script.notes
        }
        Err(mistakes) => {
            assert!(!mistakes.is_empty(), "refused without a word");
            mistakes
        }
    };
    for note in notes {
        note.render("job.sh");
    }
});
