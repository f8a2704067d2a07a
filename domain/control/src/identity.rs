//! Who asks, and what they may do. Every request passes [`authorize`] (decision D20).

use units::SubjectId;

/// Who a request comes from, proven by peer credentials or by a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    /// The person.
    pub subject: SubjectId,
    /// The operating system user whose rights their jobs get; a token carries its minter's.
    pub uid: u32,
    /// What they may do beyond their own jobs.
    pub role: Role,
}

/// What a principal may do beyond their own jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Own jobs only; sees everybody's, without their environment and output.
    User,
    /// Everything.
    Admin,
}

/// What a request wants to do. The server's route table names one for every operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Submit a job.
    Submit,
    /// See jobs, their state and the reasons for their waits.
    SeeJobs,
    /// Read a job's output, or open its terminal.
    ReadOutput,
    /// Hold, release or cancel a job, or lower its priority.
    Control,
    /// Raise a job's priority above 0.
    Favour,
    /// See nodes and devices.
    SeeNodes,
    /// Drain and resume nodes, change quotas, reserve capacity.
    Operate,
    /// Mint a login link or token for oneself.
    MintToken,
    /// Verify the log.
    Audit,
}

/// What the action is done to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Nobody's in particular.
    Cluster,
    /// Something that belongs to this person.
    Of(SubjectId),
}

/// The answer to a request that may not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    /// It belongs to somebody else.
    #[error("this job belongs to another user; its owner or an administrator can do this")]
    NotYours,
    /// Only for administrators.
    #[error("only an administrator can do this")]
    AdminOnly,
}

/// The one place where a request is allowed or not.
pub fn authorize(who: &Principal, action: Action, what: Resource) -> Result<(), Forbidden> {
    if who.role == Role::Admin {
        return Ok(());
    }
    match action {
        Action::Submit | Action::SeeJobs | Action::SeeNodes | Action::MintToken | Action::Audit => Ok(()),
        Action::ReadOutput | Action::Control => {
            if what == Resource::Of(who.subject) {
                Ok(())
            } else {
                Err(Forbidden::NotYours)
            }
        }
        Action::Favour | Action::Operate => Err(Forbidden::AdminOnly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIONS: [Action; 9] = [
        Action::Submit,
        Action::SeeJobs,
        Action::ReadOutput,
        Action::Control,
        Action::Favour,
        Action::SeeNodes,
        Action::Operate,
        Action::MintToken,
        Action::Audit,
    ];

    fn allowed(role: Role, what: Resource) -> Vec<Action> {
        let who = Principal { subject: SubjectId(1), uid: 1000, role };
        ACTIONS.into_iter().filter(|action| authorize(&who, *action, what).is_ok()).collect()
    }

    #[test]
    fn an_administrator_may_do_everything() {
        assert_eq!(allowed(Role::Admin, Resource::Of(SubjectId(2))), ACTIONS);
    }

    #[test]
    fn a_user_reads_and_controls_only_their_own() {
        use Action::{Audit, Control, MintToken, ReadOutput, SeeJobs, SeeNodes, Submit};
        let own = allowed(Role::User, Resource::Of(SubjectId(1)));
        assert_eq!(own, [Submit, SeeJobs, ReadOutput, Control, SeeNodes, MintToken, Audit]);
        let others = allowed(Role::User, Resource::Of(SubjectId(2)));
        assert_eq!(others, [Submit, SeeJobs, SeeNodes, MintToken, Audit]);
    }
}
