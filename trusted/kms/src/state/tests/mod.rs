mod files;
mod lab;
mod model;
mod rotations;
