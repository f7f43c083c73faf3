"""Device leases, the queue, and jobs that outlive the process that began them."""
