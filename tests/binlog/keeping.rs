//! Clients are told nothing of a job whose put is not durable yet.

use crate::disk::{Disk, Random};
use crate::model::{Server, open};
use beanpole::binlog::{Lsn, SyncMode};
use beanpole::protocol::{DependsOn, JobId};
use std::time::Duration;

#[test]
fn no_client_sees_a_job_before_its_put_is_durable() {
    for sync in [
        SyncMode::Always,
        SyncMode::Every(Duration::from_secs(3600)),
        SyncMode::Never,
    ] {
        let disk = Disk::default();
        let mut server = Server::open(&disk, sync, 1 << 16);
        let random = &mut Random::new(1);
        let log = server.log.clone();
        assert_eq!(log.needed_for(DependsOn::PutOf(JobId(1))), None);

        assert!(server.put(10, random));
        let first = log
            .needed_for(DependsOn::PutOf(JobId(1)))
            .expect("it is not written");
        assert!(server.put(10, random));
        let second = log
            .needed_for(DependsOn::PutOf(JobId(2)))
            .expect("it is not written");
        assert!(first > Lsn::START && second >= first);
        log.commit(first).unwrap();
        // The two puts were written together, so both are kept now.
        assert_eq!(
            (
                log.needed_for(DependsOn::PutOf(JobId(1))),
                log.needed_for(DependsOn::PutOf(JobId(2)))
            ),
            (None, None)
        );
        assert_eq!(
            open(
                &disk.state().cut(crate::disk::Survival::Everything, random),
                sync,
                1 << 16
            )
            .jobs
            .len(),
            2
        );

        // Only the put must be kept, not the later changes of the job.
        server.update(JobId(1), random);
        assert_eq!(log.needed_for(DependsOn::PutOf(JobId(1))), None);
        assert!(server.put(10, random));
        assert_eq!(log.needed_for(DependsOn::PutOf(JobId(2))), None);
        assert!(log.needed_for(DependsOn::PutOf(JobId(3))).is_some());
        assert!(server.commit());
        assert_eq!(log.needed_for(DependsOn::PutOf(JobId(3))), None);
    }
}
