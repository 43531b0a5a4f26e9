#!/bin/bash
# Mints the chain of the tests beside this script: root key, signing key, chip's key, in the forms of AMD's.
# Only the chip's private key is kept; it is worth nothing outside of the tests.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pss=(-sha384 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:48 -sigopt rsa_mgf1_md:sha384)
chip=$(printf '%02x' {1..64})

for name in ark ask; do
    openssl genpkey -quiet -algorithm RSA -pkeyopt rsa_keygen_bits:4096 -out "$work/$name.key"
done
openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-384 |
    openssl pkcs8 -topk8 -nocrypt -outform DER -out vcek.pkcs8.der

openssl req -new -x509 -key "$work/ark.key" "${pss[@]}" -days 8000 -subj "/CN=ARK of a test" \
    -addext basicConstraints=critical,CA:TRUE -outform DER -out ark.der
openssl x509 -inform DER -in ark.der -out "$work/ark.pem"

issue() { # name, key, issuer, extensions
    printf '%s\n' "$4" >"$work/$1.cnf"
    openssl req -new -key "$2" ${5:+-keyform "$5"} -subj "/CN=${1^^} of a test" -out "$work/$1.csr"
    openssl x509 -req -in "$work/$1.csr" -CA "$work/$3.pem" -CAkey "$work/$3.key" "${pss[@]}" -days 7000 \
        -set_serial "0x${RANDOM}" -extfile "$work/$1.cnf" -out "$work/$1.pem"
    openssl x509 -in "$work/$1.pem" -outform DER -out "$1.der"
}
issue ask "$work/ask.key" ark "basicConstraints=critical,CA:TRUE"
issue vcek vcek.pkcs8.der ask "1.3.6.1.4.1.3704.1.3.1=DER:020103
1.3.6.1.4.1.3704.1.3.2=DER:020100
1.3.6.1.4.1.3704.1.3.3=DER:020108
1.3.6.1.4.1.3704.1.3.8=DER:020200d1
1.3.6.1.4.1.3704.1.4=DER:$chip" DER
