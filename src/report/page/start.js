// Last: all of the page is there.
start();
