package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/** A process of a client library that does what it is told in JSON lines: {@link Client}, or our own program. */
final class Peer {
    /** Whose library. With Apache as the target everybody is Java: are the tests right? */
    enum Kind {
        RUST, JAVA, JAVA_4;

        @Override
        public String toString() {
            return this == RUST ? "rust" : this == JAVA ? "java" : "java-4.9.8";
        }
    }

    /** A message that a consumer received. */
    static final class Arrival {
        final Map<String, Object> fields;
        final String name;
        final long at;

        private Arrival(Map<String, Object> fields) {
            this.fields = fields;
            name = text("name");
            at = number("at");
        }

        String text(String key) {
            return (String) fields.get(key);
        }

        long number(String key) {
            Check.that(fields.get(key) instanceof Number, key + " is missing in " + fields);
            return ((Number) fields.get(key)).longValue();
        }

        @SuppressWarnings("unchecked")
        Map<String, String> properties() {
            return (Map<String, String>) fields.get("properties");
        }

        /** The number that the test gave to the message. */
        int numbered() {
            String number = properties().get("number");
            Check.that(number != null, "the property number is missing in " + fields);
            return Integer.parseInt(number);
        }

        String queue() {
            return text("broker") + ":" + number("queue");
        }
    }

    /** Longest that an answer may take: a shutdown waits for messages in hand, a send for its retries. */
    private static final long ANSWER_SECONDS = 60;
    private static final AtomicInteger SERIAL = new AtomicInteger();
    private static final Map<Kind, Peer> SHARED = new EnumMap<>(Kind.class);
    private static final List<Peer> ALL = new ArrayList<>();

    final Kind kind;
    private final Process process;
    private final Path errors;
    private final OutputStream in;
    private final AtomicInteger ids = new AtomicInteger();
    private final Map<Integer, CompletableFuture<Map<String, Object>>> waiting = new ConcurrentHashMap<>();
    private final Map<String, Consumer<Arrival>> listeners = new ConcurrentHashMap<>();
    private volatile String problem;

    private Peer(Kind kind) throws IOException {
        this.kind = kind;
        String name = kind + "-" + SERIAL.incrementAndGet();
        Path work = Path.of(Cluster.env("PEER_FOLDER"));
        errors = work.resolve(name + ".err");
        Path home = Files.createDirectories(work.resolve("home-" + name));
        ProcessBuilder builder = new ProcessBuilder(command(kind, home)).redirectError(errors.toFile());
        builder.environment().put("HOME", home.toString());
        process = builder.directory(home.toFile()).start();
        in = process.getOutputStream();
        Thread reader = new Thread(this::read, "peer-" + name);
        reader.setDaemon(true);
        reader.start();
    }

    private static List<String> command(Kind kind, Path home) {
        List<String> command = new ArrayList<>();
        if (kind == Kind.RUST && !Cluster.APACHE) {
            command.add(Cluster.env("RUST_CLIENT"));
        } else {
            command.addAll(List.of(System.getProperty("java.home") + "/bin/java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
                "-Duser.home=" + home));
            command.addAll(List.of(Cluster.env("PEER_JVM_FLAGS").split(" ")));
            String classes = Cluster.env(kind == Kind.JAVA_4 ? "CLASSPATH_4" : "CLASSPATH_5");
            command.addAll(List.of("-cp", classes, "interop.Client"));
        }
        command.add(Cluster.NAMESRV);
        return command;
    }

    /** A process of its own, which may be killed. */
    static Peer start(Case c, Kind kind) throws IOException {
        Peer peer = new Peer(kind);
        c.onClose(peer::kill);
        synchronized (ALL) {
            ALL.add(peer);
        }
        return peer;
    }

    /** The one that all cases use. */
    static Peer of(Kind kind) throws IOException {
        synchronized (ALL) {
            Peer known = SHARED.get(kind);
            if (known == null) {
                known = new Peer(kind);
                SHARED.put(kind, known);
                ALL.add(known);
            }
            return known;
        }
    }

    /** Ends all processes; says which of the shared ones had ended before. */
    static void shutdown() {
        synchronized (ALL) {
            ALL.forEach(Peer::kill);
        }
    }

    void kill() {
        problem = "was killed";
        process.destroyForcibly();
        try {
            process.waitFor(10, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    @SuppressWarnings("unchecked")
    private void read() {
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                Map<String, Object> fields = RemotingSerializable.fromJson(line, Map.class);
                if (fields.containsKey("event")) {
                    Consumer<Arrival> listener = listeners.get((String) fields.get("name"));
                    if (listener != null) {
                        listener.accept(new Arrival(fields));
                    }
                } else {
                    CompletableFuture<Map<String, Object>> answer = waiting.remove(((Number) fields.get("id")).intValue());
                    if (answer != null) {
                        answer.complete(fields);
                    }
                }
            }
        } catch (Exception e) {
            problem = problem == null ? "wrote what is no JSON object: " + e : problem;
        }
        problem = problem == null ? "ended by itself: " + lastErrors() : problem;
        waiting.values().forEach(each -> each.completeExceptionally(new IllegalStateException(kind + " " + problem)));
    }

    private String lastErrors() {
        try {
            List<String> lines = Files.readAllLines(errors);
            return String.join(" / ", lines.subList(Math.max(0, lines.size() - 8), lines.size()));
        } catch (IOException e) {
            return e.toString();
        }
    }

    void listen(String name, Consumer<Arrival> listener) {
        listeners.put(name, listener);
    }

    /** {@code ask("send", "name", ..)}: what was answered, or an error if that is one. */
    Map<String, Object> ask(String what, Object... fields) throws Exception {
        Map<String, Object> request = map(fields);
        int id = ids.incrementAndGet();
        request.put("id", id);
        request.put("do", what);
        CompletableFuture<Map<String, Object>> answer = new CompletableFuture<>();
        waiting.put(id, answer);
        Check.that(problem == null, kind + " " + problem);
        synchronized (in) {
            in.write((RemotingSerializable.toJson(request, false) + "\n").getBytes(StandardCharsets.UTF_8));
            in.flush();
        }
        Map<String, Object> got;
        try {
            got = answer.get(ANSWER_SECONDS, TimeUnit.SECONDS);
        } catch (TimeoutException e) {
            throw new AssertionError(kind + " does not answer " + what + " within " + ANSWER_SECONDS + " s: " + lastErrors());
        } catch (ExecutionException e) {
            throw new AssertionError(e.getCause().getMessage());
        }
        Check.that(got.get("error") == null, kind + " answers " + what + " with " + got.get("error"));
        return got;
    }

    /** A map of keys and values in turn; values that are null are left out. */
    static Map<String, Object> map(Object... fields) {
        Map<String, Object> map = new LinkedHashMap<>();
        for (int i = 0; i < fields.length; i += 2) {
            if (fields[i + 1] != null) {
                map.put((String) fields[i], fields[i + 1]);
            }
        }
        return map;
    }
}
