# Everything that people and CI do here; `make help` lists it.
SHELL := /bin/bash
CLOISTER := target/debug/cloister
export CLOISTER_GUEST_IMAGES ?= $(CURDIR)/target/guest-images
GUEST_SDK := target/guest-sdk.tar
CLOISTER_IMAGE := target/cloister.tar

.DEFAULT_GOAL := help
.PHONY: help up test test-image test-build test-units test-journeys fuzz fmt lint image images contracts docs bench release chain clean build dependencies test-dependencies

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 18

up: dependencies build image $(if $(CHAIN),chain) ## start a whole cloud with the hello example, in the foreground (CHAIN=1: under a contract)
	@exec $(CLOISTER) up --deploy examples/hello $(if $(CHAIN),--development-chain) $(ARGS)

test: test-image test-units test-journeys ## run every test (-j3: its three parts beside each other)

test-image: test-dependencies image
	scripts/check-guest-image.sh
	contracts/build.mjs --check

# Once for both of the following, which only choose from what it builds.
test-build: test-dependencies
	cargo test --workspace --locked --no-run

# Everything but the journeys and fuzz targets: they are the only integration tests whose names begin with j and f, and the
# whole workspace is chosen in all, so that nothing is built with other features. No docstring has an example that is
# compiled.
test-units: test-build image
	@if cargo metadata --locked --no-deps --format-version 1 | grep -o '"kind":\["test"\][^}]*"name":"[fj][^"]*"' | \
		grep -v -e '"journeys"' -e '"fuzz-'; then echo "rename it: make test would pass it over" >&2; exit 1; fi
	cargo test --workspace --locked --no-fail-fast --lib --bins --test '[!fj]*' $(ARGS)

test-journeys: test-build image $(GUEST_SDK) $(CLOISTER_IMAGE)
	cargo test --workspace --locked --no-fail-fast --test journeys $(ARGS)

fuzz: test-dependencies ## fuzz every parser for a few seconds (ARGS=60: a minute each)
	scripts/fuzz.sh $(ARGS)

fmt: ## format the sources
	cargo fmt --all

lint: ## check format, lints and dependencies
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	scripts/check-dependencies.sh

image: dependencies ## make the production guest image and the example's image, unless they are up to date
	@scripts/build-guest-image.sh

images: dependencies ## make the development guest image, too (root shell on the serial console)
	@scripts/build-guest-image.sh --development

contracts: test-dependencies ## compile the contracts into contracts/artifacts
	contracts/build.mjs

docs: ## build the API documentation of all crates
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --locked --no-deps

release: ## build target/release/cloister for use: optimised, and laid out for what it does most
	@scripts/install-dependencies.sh run release
	@scripts/build-release.sh

bench: test-dependencies image ## measure, and print the tables of docs/performance.md
	cargo bench --locked -p cloister-control-plane --bench api_reads
	cargo bench --locked -p cloister-control-plane --bench operations_list
	cargo bench --locked -p cloister-control-plane --bench usage
	cargo bench --locked -p cloister-control-plane --bench webhooks
	cargo bench --locked -p cloister-verifier --bench verify
	cargo bench --locked -p cloister-ra-tls --bench handshake
	cargo bench --locked -p cloister-transparency-log --bench log
	cargo bench --locked -p cloister-kms --bench release
	cargo bench --locked -p cloister-chain --bench allowance
	cargo bench --locked -p cloister-node --bench rolling
	cargo bench --locked -p cloister-control-plane --bench placement
	scripts/build-release.sh
	cargo bench --locked -p cloister-tests --bench boot
	cargo bench --locked -p cloister-tests --bench rollout
	cargo bench --locked -p cloister-tests --bench inference
	scripts/idle-memory.sh

clean: ## remove everything that was built (not the data of `make up`)
	cargo clean
	rm -f examples/hello/hello.tar

build: dependencies
	cargo build --locked -p cloister

# Whoever fetches Debian's packages does so after the guest image: all of them use one directory of apt's.
$(GUEST_SDK): $(wildcard tests/guest-sdk/*) | test-dependencies image
	@mkdir -p target
	tests/guest-sdk/build-image.sh $@

# The tests are built with it, which may leave it as it was.
$(CLOISTER): test-build ;

$(CLOISTER_IMAGE): $(CLOISTER) examples/confidential-inference/build-image.sh scripts/pack-container-image.sh | $(GUEST_SDK)
	examples/confidential-inference/build-image.sh $(CLOISTER) $@

dependencies:
	@scripts/install-dependencies.sh run

chain:
	@scripts/install-dependencies.sh run chain
	@scripts/install-anvil.sh

# One after the other: both may install packages.
test-dependencies: dependencies
	@scripts/install-dependencies.sh run test
	@scripts/install-anvil.sh
	@tests/install-clients.sh inference-sdks public-clients
