"""One real HyperQueue server and worker. Commands on stdin, seconds on stdout:
`run N` starts N tasks and waits for the last, `submit N` only hands N tasks over."""

import os
import shutil
import sys
import time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

# HyperQueue prints its own tables: answers keep stdout to themselves.
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)

base, cores = sys.argv[1], int(sys.argv[2])
PROGRAM = ["/bin/sh", "-c", 'echo done; echo x >"$HQ_TASK_DIR/x"']

with LocalCluster() as cluster:
    if cores:
        cluster.start_worker(WorkerConfig(cores=cores))
    client = cluster.client()
    for line in sys.stdin:
        command, count = line.split()
        out = os.path.join(base, "hq-out")
        shutil.rmtree(out, ignore_errors=True)
        os.makedirs(out)
        job = Job(default_workdir=out)
        for task in range(int(count)):
            job.program(PROGRAM, stdout=f"{out}/{task}", stderr=None, task_dir=True)
        start = time.time()
        submitted = client.submit(job)
        end = time.time()
        if command == "run":
            client.wait_for_jobs([submitted])
            # The client looks once a second; the tasks' own files tell when the last one ended.
            files = [entry.stat() for entry in os.scandir(out)]
            assert sum(file.st_size == 5 for file in files) == int(count), "a task left no line"
            end = max(file.st_mtime for file in files)
        print(end - start, file=answers, flush=True)
