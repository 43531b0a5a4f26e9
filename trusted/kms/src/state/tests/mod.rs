mod files;
mod full_disk;
mod lab;
mod model;
mod rotations;
