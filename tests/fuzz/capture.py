#!/usr/bin/env python3
"""Records RocketMQ frames on loopback and writes a corpus: capture.py SECONDS OUT [PORT-PORT].

Needs root (a packet socket). Run it beside tests/interop/run, whose nodes listen on 20000-32001. Keeps the first small
requests of each code, language and header kind, and from them: record (records in answers to pulls), batch (bodies of
batch sends), json (other bodies)."""
import collections, json, os, socket, struct, sys, time

seconds, out = float(sys.argv[1]), sys.argv[2]
low, high = map(int, (sys.argv[3] if len(sys.argv) > 3 else "20000-32001").split("-"))
LIMIT = 4096
kept = collections.Counter()
codes = {}  # (client address, server address, opaque) -> code of the request


def keep(kind, name, data, most):
    if len(data) > LIMIT or kept[kind, name] >= most:
        return
    path = os.path.join(out, kind)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, f"{name}-{kept[kind, name]}"), "wb") as file:
        file.write(data)
    kept[kind, name] += 1


def header(kind, data):
    if kind == 0:
        h = json.loads(data)
        return h["code"], str(h.get("language", "?")), h.get("opaque", 0), h.get("flag", 0)
    code, language, _, opaque, flag = struct.unpack(">hbhii", data[:13])
    return code, f"L{language}", opaque, flag


def frame(source, target, data):
    mark = struct.unpack(">I", data[4:8])[0]
    kind, size = mark >> 24, mark & 0xFFFFFF
    try:
        code, language, opaque, flag = header(kind, data[8:8 + size])
    except Exception:
        return
    body = data[8 + size:]
    if flag & 1 == 0:
        codes[source, target, opaque] = code
        if code == 320:  # its first messages are enough
            end = 0
            while end < len(body) and end + struct.unpack(">I", body[end:end + 4])[0] < 1500:
                end += struct.unpack(">I", body[end:end + 4])[0]
            body = body[:end]
            data = struct.pack(">I", 4 + size + end) + data[4:8 + size] + body
        keep("frame", f"request-{code}-{language.lower()}-{'json' if kind == 0 else 'binary'}", data, 2 if code in (10, 310, 11) else 1)
        if code == 320 and body:
            keep("batch", "items", body, 6)
        elif code == 103 and b'"compressed":"true"' in data:
            keep("register", "compressed", body, 3)
        elif code not in (10, 310, 320, 36, 11) and body:
            keep("json", f"body-{code}-{language.lower()}", body, 2)
    else:
        asked = codes.pop((target, source, opaque), None)
        keep("frame", f"response-to-{asked}-{code}", data, 1)
        if asked == 105 and body:
            keep("json", "route", body, 2)
        if asked == 11 and code == 0:
            while len(body) >= 91:
                size = struct.unpack(">I", body[:4])[0]
                flags = struct.unpack(">I", body[36:40])[0]
                keep("record", f"record-flags{flags:x}", body[:size], 3)
                body = body[size:]


streams = {}  # (source, target) -> [next sequence number, bytes]


def segment(source, target, seq, data):
    stream = streams.setdefault((source, target), [seq, b""])
    skip = (stream[0] - seq) & 0xFFFFFFFF
    if skip >= 1 << 31:  # something was missed: begin again
        stream[:] = [seq, b""]
        skip = 0
    data = data[skip:]
    stream[0] = (stream[0] + len(data)) & 0xFFFFFFFF
    stream[1] += data
    while len(stream[1]) >= 4:
        size = struct.unpack(">I", stream[1][:4])[0] + 4
        if not 8 <= size <= 17 << 20:
            stream[1] = b""
        if len(stream[1]) < size or not stream[1]:
            break
        frame(source, target, stream[1][:size])
        stream[1] = stream[1][size:]


tap = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
tap.bind(("lo", 0x0800))
tap.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
tap.settimeout(1)
end = time.time() + seconds
while time.time() < end:
    try:
        packet, address = tap.recvfrom(1 << 17)
    except TimeoutError:
        continue
    if address[2] == 4 or packet[9] != 6:  # sent copies; not TCP
        continue
    ip = (packet[0] & 15) * 4
    total = struct.unpack(">H", packet[2:4])[0] or len(packet)
    source, target, seq = struct.unpack(">HHI", packet[ip:ip + 8])
    if not (low <= source <= high or low <= target <= high):
        continue
    data = packet[ip + (packet[ip + 12] >> 4) * 4:total]
    if packet[ip + 13] & 2:  # SYN
        streams[source, target] = [(seq + 1) & 0xFFFFFFFF, b""]
    elif data:
        segment(source, target, seq, data)
print(sum(kept.values()), "files")
