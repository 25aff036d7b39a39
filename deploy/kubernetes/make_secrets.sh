#!/usr/bin/env bash
# Makes users, passwords and certificates in access/ (docs/access.md tells what they are), and prints them as Secrets.
# In the repository's folder, with python, openssl and kubectl:
#
#   bash deploy/kubernetes/make_secrets.sh | kubectl apply -f -
set -euo pipefail
umask 077
[[ -d access ]] || {
  python programs/make_redis_users.py access --redis-7 >&2
  openssl req -x509 -newkey rsa:3072 -nodes -days 3650 -subj "/CN=rainbow authority" \
    -addext keyUsage=critical,keyCertSign -keyout access/ca.key -out access/ca.crt 2>/dev/null
  openssl req -newkey rsa:3072 -nodes -subj "/CN=redis" -keyout access/server.key -out access/server.csr 2>/dev/null
  printf 'subjectAltName=DNS:redis\nauthorityKeyIdentifier=keyid' >access/names
  openssl x509 -req -days 3650 -in access/server.csr -CA access/ca.crt -CAkey access/ca.key -CAcreateserial \
    -extfile access/names -out access/server.crt 2>/dev/null
}
secret() { # $1 its name, then where its content comes from
  kubectl create secret generic "$@" --dry-run=client -o yaml
  echo ---
}
secret redis-server --from-file=access/users.acl --from-file=access/server.crt --from-file=access/server.key \
  --from-file=access/ca.crt
secret redis-ca --from-file=access/ca.crt
for user in learner actor viewer; do
  secret "redis-$user" --from-env-file=<(sed 's/^export //' "access/$user.env")
done
