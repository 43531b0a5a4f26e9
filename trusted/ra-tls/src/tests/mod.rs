mod authorities;
mod certificates;
mod handshakes;
mod lab;
mod requests;
mod runtimes;
