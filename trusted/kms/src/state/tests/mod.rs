mod files;
mod full_disk;
mod lab;
mod model;
mod owners;
mod rotations;
