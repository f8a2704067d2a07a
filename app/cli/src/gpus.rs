//! GPUs of a job, as flags and `#SBATCH` lines name them.

use units::{GpuModel, GpuNameError};

/// GPUs of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gpus {
    /// How many.
    pub(crate) count: u16,
    /// The model that they must be of; none takes any.
    pub(crate) model: Option<GpuModel>,
}

/// Reads `8`, `h100:8` and `h100`, with or without `gpu:` before it.
pub(crate) fn gpus(text: &str) -> Result<Gpus, String> {
    let bare = if text == "gpu" { "1" } else { text.strip_prefix("gpu:").unwrap_or(text) };
    if let Ok(count) = bare.parse() {
        return Ok(Gpus { count, model: None });
    }
    let (model, count) = bare.rsplit_once(':').unwrap_or((bare, "1"));
    let count = count.parse().map_err(|_| match model.parse::<u16>() {
        Ok(_) => format!("'{text}' names the model last; write {count}:{model}"),
        Err(_) => format!("'{text}' is no number of GPUs; write for example 8 or h100:8"),
    })?;
    let model = model.parse().map_err(|error: GpuNameError| error.to_string())?;
    Ok(Gpus { count, model: Some(model) })
}
