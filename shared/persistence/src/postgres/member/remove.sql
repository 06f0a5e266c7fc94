DELETE FROM harvest.member WHERE process_id = $1
