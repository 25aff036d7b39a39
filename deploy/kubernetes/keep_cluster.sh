#!/usr/bin/env bash
# Makes one Redis Cluster of the servers that it is given, half of them masters with one replica each. Afterwards it lets
# them meet again and again: a pod that is replaced has another address, and nodes keep nothing but addresses.
#
#   bash deploy/kubernetes/keep_cluster.sh redis-0.redis redis-1.redis redis-2.redis redis-3.redis redis-4.redis redis-5.redis
set -euo pipefail
trap exit TERM # which Linux delivers to a container's first process only with a handler

ask() { redis-cli --user admin --tls --cacert "$REDIS_CA_CERTS" "$@"; }

# A replica whose master came back under another address may look for it at the former one for ever.
follow_again() {
  local state master
  state=$(ask -h "$1" info replication | tr -d '\r') || return 0
  [[ $state == *master_link_status:down* && $state =~ master_host:([^$'\n']+) ]] || return 0
  [[ " ${here[*]} " != *" ${BASH_REMATCH[1]} "* ]] || return 0
  master=$(ask -h "$1" cluster nodes | grep -oP 'myself,slave \K\w+') || return 0
  ask -h "$1" cluster replicate "$master" || true
}

while true; do
  here=() known=
  for name in "$@"; do
    read -r address _ < <(getent ahostsv4 "$name") || continue
    slots=$(ask -h "$address" cluster info | grep -oP 'cluster_slots_assigned:\K\d+') || continue
    here+=("$address")
    [[ $slots == 0 ]] || known=$address
  done
  if [[ -n $known ]]; then
    for address in "${here[@]}"; do
      ask -h "$known" cluster meet "$address" 6379 >/dev/null || true
      follow_again "$address"
    done
  elif [[ ${#here[@]} == "$#" ]]; then # it takes none that has data or belongs to a cluster
    ask --cluster create "${here[@]/%/:6379}" --cluster-replicas 1 --cluster-yes || true
  else
    echo "Waiting for Redis servers: ${#here[@]} of $# answer"
  fi
  sleep 10
done
