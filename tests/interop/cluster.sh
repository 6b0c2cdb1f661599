# Starts, asks and stops nameservers and brokers. Sourced by run and what it calls; needs $WORK, $SHARED, $CACHE and $TARGET.
#
# An Apache broker on a busy machine takes half a minute to start or to stop, and more while its device is behind.
NODE_SECONDS=180

# Every process is a node: a folder $WORK/nodes/NAME with
#   start   a script that becomes the process
#   ready   lines "PORT" (accepts) or "PORT TOPIC" (a nameserver that knows the topic's route): up when all hold
#   pid     its process id; log its output

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOOLS_CLASSPATH="$HERE/java/log:$CACHE/client-5.5.0/*"
JVM_FLAGS=(
  --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED
  --add-opens=java.base/java.nio=ALL-UNNAMED
  --add-opens=java.base/sun.nio.ch=ALL-UNNAMED
  --add-opens=java.base/java.lang=ALL-UNNAMED
  --add-opens=java.base/jdk.internal.misc=ALL-UNNAMED
)

port_accepts() { # port
  (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# A free port below the range that the kernel gives to outgoing connections, with those free too that a node opens beside it: an
# Apache broker port-2 and port+1, the second shard of a process port+10. Several may ask at once: the port belongs to whoever
# makes its folder.
free_port() {
  local port try offset taken
  for ((try = 0; try < 200; try++)); do
    port=$((20000 + (RANDOM % 750) * 16))
    mkdir "$SHARED/ports/$port" 2>/dev/null || continue
    taken=
    for offset in -2 0 1 10; do
      if port_accepts $((port + offset)); then taken=1; fi
    done
    if [[ -z $taken ]]; then
      echo "$port"
      return
    fi
  done
  echo "no free port" >&2
  return 1
}

# Sends one route request (code 105) as a client would; true if the answer has code 0.
route_known() { # nameserver port, topic
  local header answer
  header='{"code":105,"extFields":{"topic":"'$2'"},"flag":0,"language":"JAVA","opaque":1,"serializeTypeCurrentRPC":"JSON","version":479}'
  answer=$(
    exec 2>/dev/null
    exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
    printf "$(printf '\\x00\\x00\\x00\\x%02x\\x00\\x00\\x00\\x%02x' $((${#header} + 4)) ${#header})" >&3
    printf '%s' "$header" >&3
    timeout 1 head -c 60 <&3 | tr -d '\0'
  ) || true
  [[ $answer == *'"code":0,'* ]]
}

node_running() { # name
  local pid
  pid=$(cat "$WORK/nodes/$1/pid" 2>/dev/null) && kill -0 "$pid" 2>/dev/null
}

node_start() { # name: starts it, does not wait
  local dir=$WORK/nodes/$1
  setsid "$dir/start" >>"$dir/log" 2>&1 </dev/null &
  echo $! >"$dir/pid"
}

node_wait() { # name
  local dir=$WORK/nodes/$1 deadline=$((SECONDS + NODE_SECONDS)) port topic up
  while ((SECONDS < deadline)); do
    node_running "$1" || { echo "$1 ended by itself:"; tail -n 20 "$dir/log"; return 1; }
    up=1
    while read -r port topic; do
      if [[ -n $topic ]]; then route_known "$port" "$topic" || up=; else port_accepts "$port" || up=; fi
    done <"$dir/ready"
    [[ -n $up ]] && return 0
    sleep 0.1
  done
  echo "$1 is not up after $NODE_SECONDS s:"
  tail -n 20 "$dir/log"
  return 1
}

node_stop() { # name, signal: returns when the process is gone
  local pid try
  pid=$(cat "$WORK/nodes/$1/pid" 2>/dev/null) || return 0
  kill "-$2" "$pid" 2>/dev/null || return 0
  for ((try = 0; try < NODE_SECONDS * 10; try++)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.1
  done
  echo "$1 does not end on SIG$2"
  kill -KILL "$pid" 2>/dev/null || true
  return 1
}

new_node() { # name, ready lines; its start script comes from stdin
  local dir=$WORK/nodes/$1
  mkdir -p "$dir/conf"
  { echo '#!/usr/bin/env bash'; cat; } >"$dir/start"
  chmod +x "$dir/start"
  printf '%s\n' "${@:2}" >"$dir/ready"
}

apache_nameserver() { # name, port
  local dir=$WORK/nodes/$1
  new_node "$1" "$2" <<END
export ROCKETMQ_HOME=$dir
exec java -Xms256m -Xmx256m -Duser.home=$dir ${JVM_FLAGS[*]} -cp '$TOOLS_CLASSPATH' \
  org.apache.rocketmq.namesrv.NamesrvStartup -c $dir/conf/namesrv.properties
END
  printf '%s\n' "listenPort=$2" bindAddress=127.0.0.1 >"$dir/conf/namesrv.properties"
}

# A cold Apache broker refuses sends that waited 200 ms (code 2): it is allowed to be slower here. Its TransactionMetricsFlushService
# spins until it first writes, which is 10 s by itself: all others would wait for that processor.
apache_broker() { # name, port, nameserver port, topic that shows it is registered, further key=value
  local dir=$WORK/nodes/$1
  new_node "$1" "$2" "$3 $4" <<END
export ROCKETMQ_HOME=$dir
exec java -Xms512m -Xmx1g -XX:MaxDirectMemorySize=1g -Duser.home=$dir ${JVM_FLAGS[*]} -cp '$TOOLS_CLASSPATH' \
  org.apache.rocketmq.broker.BrokerStartup -c $dir/conf/broker.conf
END
  printf '%s\n' brokerClusterName=DefaultCluster brokerName=broker-a brokerId=0 brokerIP1=127.0.0.1 bindAddress=127.0.0.1 \
    "listenPort=$2" "namesrvAddr=127.0.0.1:$3" "storePathRootDir=$dir/store" "storePathCommitLog=$dir/store/commitlog" \
    flushDiskType=ASYNC_FLUSH brokerRole=ASYNC_MASTER mappedFileSizeCommitLog=268435456 \
    waitTimeMillsInSendQueue=5000 transactionMetricFlushInterval=500 "${@:5}" >"$dir/conf/broker.conf"
}

ringmq_nameserver() { # name, port
  local dir=$WORK/nodes/$1
  new_node "$1" "$2" <<END
exec '$RINGMQ_BIN' nameserver --set listenPort=$2 --set bindAddress=127.0.0.1
END
}

ringmq_broker() { # name, port, nameserver port, topic that shows it is registered, further key=value; all in a broker.conf
  local dir=$WORK/nodes/$1
  new_node "$1" "$2" "$3 $4" <<END
exec '$RINGMQ_BIN' broker -c $dir/conf/broker.conf --store $dir/store
END
  printf '%s\n' brokerClusterName=DefaultCluster brokerName=broker-a brokerId=0 brokerIP1=127.0.0.1 bindAddress=127.0.0.1 \
    "listenPort=$2" "namesrvAddr=127.0.0.1:$3" flushDiskType=ASYNC_FLUSH brokerRole=ASYNC_MASTER "${@:5}" >"$dir/conf/broker.conf"
}

ringmq_server() { # name, port, nameserver port, topic that shows it is registered, further key=value
  local dir=$WORK/nodes/$1 sets=() each
  for each in brokerName=broker-a brokerClusterName=DefaultCluster "listenPort=$2" "nameserverPort=$3" "${@:5}"; do
    sets+=(--set "$each")
  done
  new_node "$1" "$2" "$3 $4" <<END
exec '$RINGMQ_BIN' server --store $dir/store ${sets[*]}
END
}

# A nameserver and a broker of the target; the node that is restarted is NAME.
new_cluster() { # name, broker port, nameserver port, topic that shows it is registered, further key=value
  if [[ $TARGET == apache ]]; then
    apache_nameserver "$1-nameserver" "$3"
    apache_broker "$@"
    node_start "$1-nameserver"
    node_wait "$1-nameserver"
  else
    ringmq_server "$@"
  fi
  node_start "$1"
}

stop_all_nodes() { # signal
  local dir
  for dir in "$WORK"/nodes/*/; do
    [[ -d $dir ]] && kill "-$1" "$(cat "$dir/pid" 2>/dev/null)" 2>/dev/null || true
  done
  for dir in "$WORK"/nodes/*/; do
    [[ -d $dir ]] && node_stop "$(basename "$dir")" "$1" || true
  done
}
