package interop;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;

/** Named cases, run in parallel; each prints one line: {@code ok NAME 1.2s} or {@code FAIL NAME reason}. */
final class Suite {
    interface Body {
        void run(Case c) throws Exception;
    }

    private final String prefix;
    private final Pattern only;
    private final List<String> names = new ArrayList<>();
    private final List<Body> bodies = new ArrayList<>();
    private final AtomicInteger failed = new AtomicInteger();

    Suite(String prefix, String only) {
        this.prefix = prefix;
        this.only = Pattern.compile(only);
    }

    boolean wants(String name) {
        return only.matcher(prefix + "/" + name).find();
    }

    /** Adds a case. Cases that wait long are added first, so that the others run while they wait. */
    void add(String name, Body body) {
        if (wants(name)) {
            names.add(name);
            bodies.add(body);
        }
    }

    /** Runs what was added so far and forgets it. */
    void run(int threads) throws InterruptedException {
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        for (int i = 0; i < names.size(); i++) {
            String name = names.get(i);
            Body body = bodies.get(i);
            pool.execute(() -> run(name, body));
        }
        names.clear();
        bodies.clear();
        pool.shutdown();
        if (!pool.awaitTermination(240, TimeUnit.SECONDS)) {
            report("unfinished", 240, new AssertionError("cases still running after 240 s"));
        }
    }

    /** Runs one case now, in this thread. */
    void run(String name, Body body) {
        if (!wants(name)) {
            return;
        }
        long begin = System.nanoTime();
        Throwable problem = null;
        Case c = new Case(name);
        try {
            body.run(c);
        } catch (Throwable e) {
            problem = e;
        } finally {
            c.close();
        }
        report(name, (System.nanoTime() - begin) / 1e9, problem);
    }

    void report(String name, double seconds, Throwable problem) {
        StringBuilder line = new StringBuilder();
        if (problem == null) {
            line.append(String.format(Locale.ROOT, "ok %s/%s %.1fs%n", prefix, name, seconds));
        } else {
            failed.incrementAndGet();
            String reason = problem.toString().replaceAll("\\s+", " ");
            line.append(String.format(Locale.ROOT, "FAIL %s/%s after %.1fs: %s%n", prefix, name, seconds, reason));
            StringWriter trace = new StringWriter();
            problem.printStackTrace(new PrintWriter(trace));
            for (String each : trace.toString().split("\n")) {
                if (each.contains("interop.") || each.startsWith("Caused")) {
                    line.append("    ").append(each.trim()).append('\n');
                }
            }
        }
        synchronized (System.out) {
            System.out.print(line);
            System.out.flush();
        }
    }

    int failed() {
        return failed.get();
    }
}
