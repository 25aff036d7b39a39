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
  # The server of most overlays, and the six of the cluster's.
  printf 'subjectAltName=DNS:redis,DNS:redis-0.redis,DNS:redis-1.redis,DNS:redis-2.redis,%s\nauthorityKeyIdentifier=keyid' \
    DNS:redis-3.redis,DNS:redis-4.redis,DNS:redis-5.redis >access/names
  openssl x509 -req -days 3650 -in access/server.csr -CA access/ca.crt -CAkey access/ca.key -CAcreateserial \
    -extfile access/names -out access/server.crt 2>/dev/null
}
secret() { # $1 its name, then where its content comes from
  kubectl create secret generic "$@" --dry-run=client -o yaml
  echo ---
}
# A replica asks its master for all that it holds.
sed 's/^export REDISCLI_AUTH=/masteruser admin\nmasterauth /' access/admin.env >access/replication.conf
secret redis-server --from-file=access/users.acl --from-file=access/server.crt --from-file=access/server.key \
  --from-file=access/ca.crt --from-file=access/replication.conf
secret redis-ca --from-file=access/ca.crt
for user in learner actor viewer admin; do
  secret "redis-$user" --from-env-file=<(sed 's/^export //' "access/$user.env")
done
