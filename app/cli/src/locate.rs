//! Where the state directory and the API socket are. `up` and its clients ask here, so that
//! they meet (decision D20).

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{Doing, Failure};

/// Where root's servers put their sockets; only root may write here.
const ROOT_RUNTIME: &str = "/run/fourplane";

/// Where root's server keeps its state unless told otherwise.
const ROOT_STATE: &str = "/var/lib/fourplane";

/// What the surroundings say, read once.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    uid: u32,
    home: Option<PathBuf>,
    data_home: Option<PathBuf>,
    runtime: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            uid: rustix::process::geteuid().as_raw(),
            home: absolute("HOME"),
            data_home: absolute("XDG_DATA_HOME"),
            runtime: absolute("XDG_RUNTIME_DIR"),
        }
    }

    /// The state directory where none is named.
    pub(crate) fn default_state(&self) -> PathBuf {
        if self.uid == 0 {
            return PathBuf::from(ROOT_STATE);
        }
        let data = self.data_home.clone().or_else(|| Some(self.home.as_ref()?.join(".local/share")));
        data.unwrap_or_else(|| PathBuf::from(format!("/tmp/fourplane-{}-data", self.uid))).join("fourplane")
    }

    /// This user's directory for sockets.
    fn own_runtime(&self) -> PathBuf {
        match &self.runtime {
            _ if self.uid == 0 => PathBuf::from(ROOT_RUNTIME),
            Some(runtime) => runtime.join("fourplane"),
            None => PathBuf::from(format!("/tmp/fourplane-{}", self.uid)),
        }
    }

    /// The socket of a server that this user starts on `state`; its directory is made.
    pub(crate) fn own_socket(&self, state: &Path) -> Result<PathBuf, Failure> {
        let dir = self.own_runtime();
        let making = || format!("cannot make the socket directory {}", dir.display());
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).doing(making)?;
        self.check_owner(&dir)?;
        if self.uid == 0 {
            // Everybody comes this way, whatever the file creation mask is.
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).doing(making)?;
        }
        Ok(dir.join(socket_name(state, &[self.default_state()])))
    }

    /// State directories that may be meant, the likeliest first: the one that is named, or this
    /// user's and then root's.
    pub(crate) fn states(&self, named: Option<&Path>) -> Vec<PathBuf> {
        match named {
            Some(state) => vec![state.to_owned()],
            None if self.uid == 0 => vec![PathBuf::from(ROOT_STATE)],
            None => vec![self.default_state(), PathBuf::from(ROOT_STATE)],
        }
    }

    /// Sockets at which a server on `state` may answer, the likeliest first: this user's own
    /// server, then root's.
    pub(crate) fn sockets(&self, state: Option<&Path>) -> Vec<PathBuf> {
        let default = self.default_state();
        let name = socket_name(state.unwrap_or(&default), &[default.clone(), PathBuf::from(ROOT_STATE)]);
        let mut sockets = vec![self.own_runtime().join(&name)];
        // A directory that somebody else prepared is no place to send an environment to.
        sockets.retain(|socket| socket.parent().is_some_and(|dir| self.check_owner(dir).is_ok()));
        let of_root = Path::new(ROOT_RUNTIME).join(name);
        if !sockets.contains(&of_root) {
            sockets.push(of_root);
        }
        sockets
    }

    fn check_owner(&self, dir: &Path) -> Result<(), Failure> {
        let found = std::fs::symlink_metadata(dir)
            .doing(|| format!("cannot look at the socket directory {}", dir.display()))?;
        if found.is_dir() && found.uid() == self.uid {
            Ok(())
        } else {
            Err(Failure::failed(format!("{} is not a directory of yours", dir.display()))
                .hint("set XDG_RUNTIME_DIR to a directory that only you can write to"))
        }
    }
}

/// `api.sock` for a default state directory, else a name made from the directory's path.
fn socket_name(state: &Path, defaults: &[PathBuf]) -> OsString {
    let state = whole_path(state);
    if defaults.iter().any(|default| whole_path(default) == state) {
        return OsString::from("api.sock");
    }
    let hash = blake3::hash(state.as_os_str().as_bytes()).to_hex();
    OsString::from(format!("{}.sock", &hash[..16]))
}

/// The absolute path with links resolved, as far as it exists.
fn whole_path(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut missing = Vec::new();
    let mut known = absolute.as_path();
    loop {
        if let Ok(real) = known.canonicalize() {
            return missing.iter().rev().fold(real, |path, name| path.join(name));
        }
        match (known.parent(), known.file_name()) {
            (Some(parent), Some(name)) => {
                missing.push(name.to_owned());
                known = parent;
            }
            _ => return absolute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32) -> Surroundings {
        Surroundings { uid, home: Some(PathBuf::from("/home/u")), data_home: None, runtime: None }
    }

    #[test]
    fn a_server_of_root_is_found_by_everybody() {
        let up = user(0).sockets(Some(Path::new("/srv/state")));
        let client = user(4242).sockets(Some(Path::new("/srv/./state")));
        assert_eq!(up, client);
        assert_eq!(user(4242).sockets(None), [Path::new("/run/fourplane/api.sock")]);
        assert_eq!(
            user(4242).sockets(Some(Path::new("/var/lib/fourplane"))),
            [Path::new("/run/fourplane/api.sock")]
        );
    }

    #[test]
    fn two_directories_have_two_sockets() {
        let name = |path: &str| socket_name(Path::new(path), &[]);
        assert_ne!(name("/srv/a"), name("/srv/b"));
        assert_eq!(name("/srv/a"), name("/srv/a"));
    }

    #[test]
    fn defaults_follow_the_user() {
        assert_eq!(user(0).default_state(), Path::new("/var/lib/fourplane"));
        assert_eq!(user(7).default_state(), Path::new("/home/u/.local/share/fourplane"));
    }
}
