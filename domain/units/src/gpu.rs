//! The names of GPU models: one canonical name each, and what drivers, labels and people call it.
//!
//! Matching is exact once case and separators are set aside: `a100` never takes an `A100-SXM-80GB`,
//! and a name that fits several models is refused with the choices. Where a driver names only one
//! variant of a family without a suffix (`NVIDIA H200` is the SXM one), the bare name means that one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod table;

/// A GPU model, known by its canonical name: `H100-SXM-80GB`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GpuModel(u16);

/// Who makes a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuVendor {
    /// NVIDIA: CUDA, NVML, MIG.
    Nvidia,
    /// AMD: `ROCm`, amdgpu.
    Amd,
}

/// How a GPU is built in, which decides its links and its power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GpuForm {
    /// A module on an `NVLink` board.
    Sxm,
    /// A module on an Infinity Fabric board.
    Oam,
    /// A PCI Express card, bridged or not.
    Pcie,
    /// Soldered beside its CPU.
    Superchip,
}

/// What a driver, a label or a Slurm GRES type names: a model, perhaps a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuName {
    /// The whole GPU.
    pub model: GpuModel,
    /// The MIG profile, where a part is named.
    pub mig: Option<MigProfile>,
    /// Whether the label says that it is time-sliced (`-SHARED`).
    pub shared: bool,
}

/// A MIG profile: `1g.10gb`, `1g.10gb+me`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MigProfile {
    /// Compute slices, of [`GpuModel::mig_slices`].
    pub slices: u8,
    /// Memory as the profile names it, in marketing gigabytes: never to be compared with bytes.
    pub memory_gb: u16,
    /// Which engines come with it.
    pub extras: MigExtras,
}

/// What a MIG profile carries besides compute and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MigExtras {
    /// Nothing special.
    #[default]
    Plain,
    /// `+me`: one set of media engines.
    Media,
    /// `+me.all`: all media engines.
    AllMedia,
    /// `-me`: no media engines.
    NoMedia,
    /// `+gfx`: graphics.
    Graphics,
}

/// What a Kubernetes container asks for by resource name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GpuResource {
    /// `nvidia.com/gpu`, `amd.com/gpu`: whole devices, or shares of one where they are time-sliced.
    Whole(GpuVendor),
    /// `nvidia.com/mig-1g.10gb`.
    Mig(MigProfile),
}

/// Why a GPU's name was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GpuNameError {
    /// Not in the table.
    #[error("'{0}' is no GPU model that is known here")]
    Unknown(String),
    /// Fits several models.
    #[error("'{name}' may be {}", .choices.join(", "))]
    Ambiguous {
        /// As written.
        name: String,
        /// Canonical names of all that it may be.
        choices: Vec<&'static str>,
    },
    /// The model cannot be parted like that.
    #[error("{model} has no MIG profile {profile}; it has {}", or_none(.model.mig_profiles()))]
    NoSuchProfile {
        /// The model.
        model: GpuModel,
        /// The profile as written.
        profile: MigProfile,
    },
    /// Not of the form `1g.10gb`.
    #[error("'{0}' is no MIG profile; write for example 1g.10gb")]
    NotAProfile(String),
}

fn or_none(profiles: &[&str]) -> String {
    if profiles.is_empty() { "none".to_owned() } else { profiles.join(", ") }
}

impl GpuModel {
    /// All models, in the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..).map(Self).take(table::MODELS.len())
    }

    fn row(self) -> &'static table::Row {
        &table::MODELS[usize::from(self.0)]
    }

    /// The canonical name.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Its maker.
    pub fn vendor(self) -> GpuVendor {
        self.row().vendor
    }

    /// How it is built in.
    pub fn form(self) -> GpuForm {
        self.row().form
    }

    /// The family that people speak of: `a100`.
    pub fn family(self) -> &'static str {
        self.row().family
    }

    /// Memory as it is sold, in marketing gigabytes: never to be compared with what a driver reports.
    pub fn memory_gb(self) -> u16 {
        self.row().memory_gb
    }

    /// The MIG profiles it can be parted into; empty where it has no MIG.
    pub fn mig_profiles(self) -> &'static [&'static str] {
        self.row().mig.1
    }

    /// The compute slices that MIG divides it into; 0 where it has no MIG.
    pub fn mig_slices(self) -> u8 {
        self.row().mig.0
    }

    /// Checks that the model has this MIG profile.
    pub fn check_profile(self, profile: MigProfile) -> Result<(), GpuNameError> {
        let name = profile.to_string();
        if self.mig_profiles().contains(&name.as_str()) {
            Ok(())
        } else {
            Err(GpuNameError::NoSuchProfile { model: self, profile })
        }
    }

    /// By a name that is already normalised.
    fn find(plain: &str, written: &str) -> Result<Self, GpuNameError> {
        let named = |model: &Self| {
            let row = model.row();
            row.aliases.contains(&plain) || row.name.eq_ignore_ascii_case(plain)
        };
        if let Some(model) = Self::all().find(named) {
            return Ok(model);
        }
        let family: Vec<_> = Self::all()
            .filter(|model| model.family() == plain || model.row().shared_names.contains(&plain))
            .map(Self::name)
            .collect();
        if family.is_empty() {
            Err(GpuNameError::Unknown(written.to_owned()))
        } else {
            Err(GpuNameError::Ambiguous { name: written.to_owned(), choices: family })
        }
    }
}

/// Lower case, one hyphen for every separator, without the names of makers and product lines.
fn normalise(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let words = lower.split([' ', '_', '-', '/']).filter(|word| !word.is_empty());
    let is_line = |word: &&str| matches!(*word, "nvidia" | "amd" | "instinct" | "tesla" | "geforce");
    words.skip_while(is_line).collect::<Vec<_>>().join("-")
}

impl FromStr for GpuModel {
    type Err = GpuNameError;

    /// Any name in the table, as drivers, labels, GRES types and people write it.
    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        Self::find(&normalise(text), text)
    }
}

impl FromStr for GpuName {
    type Err = GpuNameError;

    /// A model, or a part of one: `NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`, `h100_1g.10gb`, `Tesla-T4-SHARED`.
    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        let plain = normalise(text);
        let (plain, shared) = match plain.strip_suffix("-shared") {
            Some(rest) => (rest, true),
            None => (plain.as_str(), false),
        };
        let part = plain.match_indices('-').find_map(|(at, _)| {
            let profile = plain[at + 1..].parse::<MigProfile>().ok()?;
            Some((&plain[..at], profile))
        });
        let Some((whole, profile)) = part else {
            return Ok(Self { model: GpuModel::find(plain, text)?, mig: None, shared });
        };
        let model = GpuModel::find(whole.strip_suffix("-mig").unwrap_or(whole), text)?;
        model.check_profile(profile)?;
        Ok(Self { model, mig: Some(profile), shared })
    }
}

impl FromStr for MigProfile {
    type Err = GpuNameError;

    /// `1g.10gb`, `1g.10gb+me`; Kubernetes' `1g.10gb.me` too, where `+` cannot be written.
    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        let refuse = || GpuNameError::NotAProfile(text.to_owned());
        let (slices, rest) = text.split_once("g.").ok_or_else(refuse)?;
        let (memory, extras) = rest.split_once("gb").ok_or_else(refuse)?;
        let extras = match extras {
            "" => MigExtras::Plain,
            "+me" | ".me" => MigExtras::Media,
            "+me.all" | ".me.all" => MigExtras::AllMedia,
            "-me" => MigExtras::NoMedia,
            "+gfx" | ".gfx" => MigExtras::Graphics,
            _ => return Err(refuse()),
        };
        let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(slices) || !all_digits(memory) {
            return Err(refuse());
        }
        let slices = slices.parse().map_err(|_| refuse())?;
        let memory_gb = memory.parse().map_err(|_| refuse())?;
        Ok(Self { slices, memory_gb, extras })
    }
}

impl FromStr for GpuResource {
    type Err = GpuNameError;

    fn from_str(text: &str) -> Result<Self, GpuNameError> {
        match text {
            "nvidia.com/gpu" | "nvidia.com/gpu.shared" => Ok(Self::Whole(GpuVendor::Nvidia)),
            "amd.com/gpu" => Ok(Self::Whole(GpuVendor::Amd)),
            _ => match text.strip_prefix("nvidia.com/mig-") {
                Some(profile) => profile.parse().map(Self::Mig),
                None => Err(GpuNameError::Unknown(text.to_owned())),
            },
        }
    }
}

impl fmt::Display for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for GpuModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for MigProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extras = match self.extras {
            MigExtras::Plain => "",
            MigExtras::Media => "+me",
            MigExtras::AllMedia => "+me.all",
            MigExtras::NoMedia => "-me",
            MigExtras::Graphics => "+gfx",
        };
        write!(f, "{}g.{}gb{extras}", self.slices, self.memory_gb)
    }
}

impl Serialize for GpuModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for GpuModel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl Serialize for MigProfile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MigProfile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn check(text: &str, expect: Result<&str, &str>) {
        let got = text.parse::<GpuName>();
        let shown = got.map(|name| {
            let mig = name.mig.map(|mig| format!(" {mig}")).unwrap_or_default();
            format!("{}{mig}{}", name.model, if name.shared { " shared" } else { "" })
        });
        let shown = shown.as_ref().map(String::as_str).map_err(ToString::to_string);
        assert_eq!(shown, expect.map_err(str::to_owned), "{text}");
    }

    #[test]
    fn every_way_to_write_a_model() {
        for text in [
            "h100",
            "H100-SXM-80GB",
            "nvidia_h100_80gb_hbm3",
            "NVIDIA-H100-80GB-HBM3",
            "NVIDIA H100 80GB HBM3",
        ] {
            check(text, Ok("H100-SXM-80GB"));
        }
        check("NVIDIA H100 PCIe", Ok("H100-PCIE-80GB"));
        check("NVIDIA H100 NVL", Ok("H100-NVL-94GB"));
        check("NVIDIA H200", Ok("H200-SXM-141GB"));
        check("NVIDIA A100-SXM4-80GB", Ok("A100-SXM-80GB"));
        check("NVIDIA A100 80GB PCIe", Ok("A100-PCIE-80GB"));
        check("Tesla-V100-SXM2-32GB", Ok("V100-SXM-32GB"));
        check("AMD_Instinct_MI300X_OAM", Ok("MI300X-OAM-192GB"));
        check("amd_instinct_mi300x", Ok("MI300X-OAM-192GB"));
        check("mi300x", Ok("MI300X-OAM-192GB"));
        check("NVIDIA B300 SXM6 AC", Ok("B300-SXM-288GB"));
        check("NVIDIA GH200 480GB", Ok("GH200-96GB"));
        check("nvidia_geforce_rtx_4090", Ok("RTX-4090-24GB"));
    }

    #[test]
    fn nothing_is_matched_by_its_beginning() {
        let choices = "'a100' may be A100-SXM-40GB, A100-SXM-80GB, A100-PCIE-40GB, A100-PCIE-80GB";
        check("a100", Err(choices));
        check("H100-SXM", Err("'H100-SXM' is no GPU model that is known here"));
        check("H100-SXM-80GB-XL", Err("'H100-SXM-80GB-XL' is no GPU model that is known here"));
        check("a100-80gb", Err("'a100-80gb' may be A100-SXM-80GB, A100-PCIE-80GB"));
        check("", Err("'' is no GPU model that is known here"));
        check("nvidia", Err("'nvidia' is no GPU model that is known here"));
        check(
            "NVIDIA RTX A2000 Laptop GPU",
            Err("'NVIDIA RTX A2000 Laptop GPU' is no GPU model that is known here"),
        );
    }

    #[test]
    fn parts_of_a_gpu() {
        check("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", Ok("A100-SXM-40GB 1g.5gb"));
        check("nvidia_h100_80gb_hbm3_1g.10gb", Ok("H100-SXM-80GB 1g.10gb"));
        check("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me", Ok("H100-SXM-80GB 1g.10gb+me"));
        check("NVIDIA-L40S-SHARED", Ok("L40S-PCIE-48GB shared"));
        check("RTX-PRO-6000-SERVER-96GB-MIG-1g.24gb-me", Ok("RTX-PRO-6000-SERVER-96GB 1g.24gb-me"));
        check("NVIDIA-L40S-MIG-1g.10gb", Err("L40S-PCIE-48GB has no MIG profile 1g.10gb; it has none"));
        check(
            "h200_1g.10gb",
            Err("H200-SXM-141GB has no MIG profile 1g.10gb; it has 1g.18gb, 1g.18gb+me, 1g.35gb, \
                 2g.35gb, 3g.71gb, 4g.71gb, 7g.141gb"),
        );
        assert_eq!("nvidia.com/gpu".parse(), Ok(GpuResource::Whole(GpuVendor::Nvidia)));
        assert_eq!("nvidia.com/mig-1g.10gb".parse(), "1g.10gb".parse().map(GpuResource::Mig));
        assert!("intel.com/gpu".parse::<GpuResource>().is_err());
        assert!("+1g.10gb".parse::<MigProfile>().is_err());
    }

    #[test]
    fn the_table_contradicts_itself_nowhere() {
        let mut owners = BTreeMap::new();
        for model in GpuModel::all() {
            assert_eq!(model.name().parse(), Ok(model));
            assert!(owners.insert(normalise(model.name()), model).is_none(), "{model}");
            for alias in model.row().aliases {
                assert_eq!(normalise(alias), *alias, "aliases are written normalised");
                assert!(owners.insert((*alias).to_owned(), model).is_none(), "{alias}");
            }
            for profile in model.mig_profiles() {
                let parsed: MigProfile = profile.parse().expect("a profile");
                assert_eq!(&parsed.to_string(), profile);
                assert!(parsed.slices <= model.mig_slices());
            }
        }
    }
}
