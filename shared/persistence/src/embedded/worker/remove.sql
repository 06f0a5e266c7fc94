DELETE FROM worker WHERE worker_id = ?1
