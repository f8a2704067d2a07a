//! The models. Names: what NVML and `nvidia-smi -L` print, what NVIDIA's and AMD's device plugins
//! label nodes with, what Slurm's GRES detection makes of those, and what people type. MIG profiles:
//! NVIDIA's MIG User Guide, "Supported MIG Profiles", and the GPU Operator's release notes.

use super::GpuForm::{Oam, Pcie, Superchip, Sxm};
use super::GpuVendor::{Amd, Nvidia};
use super::{GpuForm, GpuVendor};

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) family: &'static str,
    pub(super) vendor: GpuVendor,
    pub(super) form: GpuForm,
    pub(super) memory_gb: u16,
    pub(super) mig: Mig,
    /// Other names of this model alone, normalised.
    pub(super) aliases: &'static [&'static str],
    /// Names that fit other models too, besides the family's.
    pub(super) shared_names: &'static [&'static str],
}

/// Compute slices, and the profiles they make.
type Mig = (u8, &'static [&'static str]);

const NO_MIG: Mig = (0, &[]);
const MIG_24: Mig = (4, &["1g.6gb", "1g.6gb+me", "2g.12gb", "2g.12gb+me", "4g.24gb"]);
const MIG_40: Mig = (7, &["1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]);
const MIG_80: Mig = (7, &["1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]);
const MIG_94: Mig = (7, &["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.47gb", "4g.47gb", "7g.94gb"]);
const MIG_96: Mig = (7, &["1g.12gb", "1g.12gb+me", "1g.24gb", "2g.24gb", "3g.48gb", "4g.48gb", "7g.96gb"]);
const MIG_141: Mig = (7, &["1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"]);
const MIG_144: Mig = (7, &["1g.18gb", "1g.18gb+me", "1g.36gb", "2g.36gb", "3g.72gb", "4g.72gb", "7g.144gb"]);
const MIG_180: Mig = (7, &["1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb"]);
const MIG_186: Mig = (7, &["1g.23gb", "1g.23gb+me", "1g.47gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb"]);
const MIG_269: Mig =
    (7, &["1g.34gb", "1g.34gb+me", "1g.67gb", "2g.67gb", "3g.135gb", "4g.135gb", "7g.269gb"]);
const MIG_278: Mig =
    (7, &["1g.35gb", "1g.35gb+me", "1g.70gb", "2g.70gb", "3g.139gb", "4g.139gb", "7g.278gb"]);
const MIG_PRO: Mig = (
    4,
    &[
        "1g.24gb",
        "1g.24gb+me",
        "1g.24gb+gfx",
        "1g.24gb+me.all",
        "1g.24gb-me",
        "2g.48gb",
        "2g.48gb+gfx",
        "2g.48gb+me.all",
        "2g.48gb-me",
        "4g.96gb",
        "4g.96gb+gfx",
    ],
);

const fn nvidia(
    name: &'static str,
    family: &'static str,
    form: GpuForm,
    memory_gb: u16,
    mig: Mig,
    aliases: &'static [&'static str],
) -> Row {
    Row { name, family, vendor: Nvidia, form, memory_gb, mig, aliases, shared_names: &[] }
}

const fn amd(
    name: &'static str,
    family: &'static str,
    form: GpuForm,
    memory_gb: u16,
    aliases: &'static [&'static str],
) -> Row {
    Row { name, family, vendor: Amd, form, memory_gb, mig: NO_MIG, aliases, shared_names: &[] }
}

impl Row {
    const fn also(self, shared_names: &'static [&'static str]) -> Self {
        Self { shared_names, ..self }
    }
}

pub(super) const MODELS: &[Row] = &[
    nvidia(
        "H100-SXM-80GB",
        "h100",
        Sxm,
        80,
        MIG_80,
        &["h100", "h100-80gb-hbm3", "h100-sxm5-80gb", "h100-sxm5"],
    ),
    nvidia("H100-PCIE-80GB", "h100", Pcie, 80, MIG_80, &["h100-pcie"]),
    nvidia("H100-NVL-94GB", "h100", Pcie, 94, MIG_94, &["h100-nvl"]),
    nvidia(
        "H200-SXM-141GB",
        "h200",
        Sxm,
        141,
        MIG_141,
        &["h200", "h200-141gb-hbm3e", "h200-sxm", "h200-sxm5-141gb"],
    ),
    nvidia("H200-NVL-141GB", "h200", Pcie, 141, MIG_141, &["h200-nvl"]),
    nvidia("H800-SXM-80GB", "h800", Sxm, 80, MIG_80, &["h800"]),
    nvidia("H20-SXM-96GB", "h20", Sxm, 96, MIG_96, &["h20"]),
    nvidia("GH200-96GB", "gh200", Superchip, 96, MIG_96, &["gh200-480gb"]),
    nvidia("GH200-144GB", "gh200", Superchip, 144, MIG_144, &["gh200-144g-hbm3e"]),
    nvidia("B200-SXM-180GB", "b200", Sxm, 180, MIG_180, &["b200", "b200-sxm", "b200-sxm6"]),
    nvidia("B300-SXM-288GB", "b300", Sxm, 288, MIG_269, &["b300", "b300-sxm6-ac", "b300-sxm6"]),
    nvidia("GB200-186GB", "gb200", Superchip, 186, MIG_186, &["gb200"]),
    nvidia("GB300-288GB", "gb300", Superchip, 288, MIG_278, &["gb300"]),
    nvidia("A100-SXM-40GB", "a100", Sxm, 40, MIG_40, &["a100-sxm4-40gb"]).also(&["a100-40gb"]),
    nvidia("A100-SXM-80GB", "a100", Sxm, 80, MIG_80, &["a100-sxm4-80gb"]).also(&["a100-80gb"]),
    nvidia("A100-PCIE-40GB", "a100", Pcie, 40, MIG_40, &[]).also(&["a100-40gb"]),
    nvidia("A100-PCIE-80GB", "a100", Pcie, 80, MIG_80, &["a100-80gb-pcie"]).also(&["a100-80gb"]),
    nvidia("A800-SXM-80GB", "a800", Sxm, 80, MIG_80, &["a800-sxm4-80gb"]),
    nvidia("A800-PCIE-80GB", "a800", Pcie, 80, MIG_80, &["a800-80gb-pcie"]),
    nvidia("A30-PCIE-24GB", "a30", Pcie, 24, MIG_24, &["a30"]),
    nvidia("A40-PCIE-48GB", "a40", Pcie, 48, NO_MIG, &["a40"]),
    nvidia("A10-PCIE-24GB", "a10", Pcie, 24, NO_MIG, &["a10"]),
    nvidia("A10G-PCIE-24GB", "a10g", Pcie, 24, NO_MIG, &["a10g"]),
    nvidia("A16-PCIE-16GB", "a16", Pcie, 16, NO_MIG, &["a16"]),
    nvidia("L40S-PCIE-48GB", "l40s", Pcie, 48, NO_MIG, &["l40s"]),
    nvidia("L40-PCIE-48GB", "l40", Pcie, 48, NO_MIG, &["l40"]),
    nvidia("L4-PCIE-24GB", "l4", Pcie, 24, NO_MIG, &["l4"]),
    nvidia("T4-PCIE-16GB", "t4", Pcie, 16, NO_MIG, &["t4"]),
    nvidia("V100-SXM-16GB", "v100", Sxm, 16, NO_MIG, &["v100-sxm2-16gb"]).also(&["v100-16gb"]),
    nvidia("V100-SXM-32GB", "v100", Sxm, 32, NO_MIG, &["v100-sxm2-32gb", "v100-sxm3-32gb"])
        .also(&["v100-32gb"]),
    nvidia("V100-PCIE-16GB", "v100", Pcie, 16, NO_MIG, &[]).also(&["v100-16gb"]),
    nvidia("V100-PCIE-32GB", "v100", Pcie, 32, NO_MIG, &[]).also(&["v100-32gb"]),
    nvidia("P100-SXM-16GB", "p100", Sxm, 16, NO_MIG, &["p100-sxm2-16gb"]),
    nvidia("P100-PCIE-16GB", "p100", Pcie, 16, NO_MIG, &[]),
    nvidia(
        "RTX-PRO-6000-SERVER-96GB",
        "rtx-pro-6000",
        Pcie,
        96,
        MIG_PRO,
        &["rtx-pro-6000-blackwell-server-edition"],
    ),
    nvidia(
        "RTX-PRO-6000-WORKSTATION-96GB",
        "rtx-pro-6000",
        Pcie,
        96,
        MIG_PRO,
        &["rtx-pro-6000-blackwell-workstation-edition"],
    ),
    nvidia(
        "RTX-PRO-6000-MAXQ-96GB",
        "rtx-pro-6000",
        Pcie,
        96,
        MIG_PRO,
        &["rtx-pro-6000-blackwell-max-q-workstation-edition"],
    ),
    nvidia(
        "RTX-6000-ADA-48GB",
        "rtx-6000-ada",
        Pcie,
        48,
        NO_MIG,
        &["rtx-6000-ada", "rtx-6000-ada-generation"],
    ),
    nvidia("RTX-A6000-48GB", "rtx-a6000", Pcie, 48, NO_MIG, &["rtx-a6000"]),
    nvidia("RTX-A5000-24GB", "rtx-a5000", Pcie, 24, NO_MIG, &["rtx-a5000"]),
    nvidia("RTX-5090-32GB", "rtx-5090", Pcie, 32, NO_MIG, &["rtx-5090"]),
    nvidia("RTX-4090-24GB", "rtx-4090", Pcie, 24, NO_MIG, &["rtx-4090"]),
    nvidia("RTX-3090-24GB", "rtx-3090", Pcie, 24, NO_MIG, &["rtx-3090"]),
    amd("MI355X-OAM-288GB", "mi355x", Oam, 288, &["mi355x", "mi355x-oam"]),
    amd("MI350X-OAM-288GB", "mi350x", Oam, 288, &["mi350x", "mi350x-oam"]),
    amd("MI325X-OAM-256GB", "mi325x", Oam, 256, &["mi325x", "mi325x-oam"]),
    amd("MI308X-OAM-192GB", "mi308x", Oam, 192, &["mi308x", "mi308x-oam"]),
    amd("MI300X-OAM-192GB", "mi300x", Oam, 192, &["mi300x", "mi300x-oam"]),
    amd("MI300A-128GB", "mi300a", Superchip, 128, &["mi300a"]),
    amd("MI250X-OAM-128GB", "mi250x", Oam, 128, &["mi250x"]).also(&["mi250x-mi250"]),
    amd("MI250-OAM-128GB", "mi250", Oam, 128, &["mi250"]).also(&["mi250x-mi250"]),
    amd("MI210-PCIE-64GB", "mi210", Pcie, 64, &["mi210"]),
    amd("MI100-PCIE-32GB", "mi100", Pcie, 32, &["mi100"]),
];
