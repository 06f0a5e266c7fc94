DELETE FROM worker WHERE last_seen < ?1
