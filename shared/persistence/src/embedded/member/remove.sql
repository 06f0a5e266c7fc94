DELETE FROM member WHERE process_id = ?1
