#!/usr/bin/env node
// Compiles the contracts with the pinned compiler and libraries: usage: contracts/build.mjs [--check].
// Writes contracts/artifacts; with --check, fails if what is there is not what the sources give.
// Nothing of the machine gets into the result: source names are relative to the project, and there is no metadata.

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const HERE = dirname(fileURLToPath(import.meta.url));
const ARTIFACTS = join(HERE, "artifacts");
const INSTALLED = join(HERE, "..", "target", "contracts");
// Contract → the file that has it.
const CONTRACTS = {
  AllowanceLens: "contracts/src/AllowanceLens.sol",
  CloisterApp: "contracts/src/CloisterApp.sol",
  CloisterKms: "contracts/src/CloisterKms.sol",
  ERC1967Proxy: "@openzeppelin/contracts/proxy/ERC1967/ERC1967Proxy.sol",
};
const SETTINGS = {
  // What Ethereum, Base and their development nodes have run for long.
  evmVersion: "cancun",
  optimizer: { enabled: true, runs: 200 },
  metadata: { bytecodeHash: "none", appendCBOR: false },
  outputSelection: {
    "*": { "*": ["abi", "evm.bytecode.object", "evm.deployedBytecode.object", "evm.deployedBytecode.immutableReferences"] },
  },
};

// Installs what package-lock.json names, with its hashes, below target/; runs no script of a package.
function install() {
  const lock = join(INSTALLED, "package-lock.json");
  const marker = join(INSTALLED, "installed");
  const wanted = createHash("sha256").update(readFileSync(join(HERE, "package-lock.json"))).digest("hex");
  if (existsSync(marker) && readFileSync(marker, "utf8") === wanted) return;
  mkdirSync(INSTALLED, { recursive: true });
  copyFileSync(join(HERE, "package.json"), join(INSTALLED, "package.json"));
  copyFileSync(join(HERE, "package-lock.json"), lock);
  const npm = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
  execFileSync("npm", npm, { cwd: INSTALLED, stdio: ["ignore", "ignore", "inherit"] });
  writeFileSync(marker, wanted);
}

// A source by its name: ours by the path in the project, the libraries' by their package.
function source(name) {
  return readFileSync(name.startsWith("@") ? join(INSTALLED, "node_modules", name) : join(HERE, "..", name), "utf8");
}

function compile(solc) {
  const sources = Object.fromEntries(Object.values(CONTRACTS).map((name) => [name, { content: source(name) }]));
  const input = JSON.stringify({ language: "Solidity", sources, settings: SETTINGS });
  const imported = (name) => {
    try {
      return { contents: source(name) };
    } catch (error) {
      return { error: error.message };
    }
  };
  const output = JSON.parse(solc.compile(input, { import: imported }));
  const complaints = (output.errors ?? []).filter((each) => each.severity !== "info");
  if (complaints.length > 0) fail(complaints.map((each) => each.formattedMessage).join("\n"));
  return output.contracts;
}

// File name → content of everything in artifacts/.
function artifacts() {
  install();
  const load = createRequire(join(INSTALLED, "package.json"));
  const solc = load("solc");
  const { keccak256 } = load("js-sha3");
  const described = (hex) => {
    const bytes = Buffer.from(hex, "hex");
    return { bytes: bytes.length, keccak256: keccak256(bytes) };
  };
  const compiled = compile(solc);
  const files = {};
  for (const [name, file] of Object.entries(CONTRACTS)) {
    const { abi, evm } = compiled[file][name];
    const immutables = Object.values(evm.deployedBytecode.immutableReferences).flat();
    const artifact = {
      contract: name,
      source: file,
      compiler: solc.version(),
      settings: { evmVersion: SETTINGS.evmVersion, optimizer: SETTINGS.optimizer, metadata: SETTINGS.metadata },
      creation: described(evm.bytecode.object),
      // Of the code on the chain, with zeros where the immutable values are.
      deployed: { ...described(evm.deployedBytecode.object), immutables: immutables.sort((a, b) => a.start - b.start) },
      abi,
    };
    files[`${name}.json`] = JSON.stringify(artifact, null, 1) + "\n";
    files[`${name}.bin`] = evm.bytecode.object;
  }
  files.SHA256SUMS = Object.keys(files).sort()
    .map((name) => `${createHash("sha256").update(files[name]).digest("hex")}  ${name}\n`).join("");
  return files;
}

function fail(words) {
  console.error(`contracts/build.mjs: ${words}`);
  process.exit(1);
}

function main(mode) {
  if (mode !== undefined && mode !== "--check") fail("usage: contracts/build.mjs [--check]");
  const files = artifacts();
  mkdirSync(ARTIFACTS, { recursive: true });
  if (mode === undefined) {
    for (const [name, content] of Object.entries(files)) writeFileSync(join(ARTIFACTS, name), content);
    return;
  }
  const present = readdirSync(ARTIFACTS);
  const other = new Set([...present, ...Object.keys(files)].filter((name) =>
    !present.includes(name) || readFileSync(join(ARTIFACTS, name), "utf8") !== files[name]));
  if (other.size > 0) fail(`not what the sources give: ${[...other].join(", ")}; run "make contracts" and commit the result`);
  console.log(`contracts/build.mjs: ${present.length} artifacts are what the sources give`);
}

main(...process.argv.slice(2));
