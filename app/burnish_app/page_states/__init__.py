"""What each page shows, as values computed by a pure function `page_state` from what is known. Without Qt."""
