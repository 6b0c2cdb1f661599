package interop;

/** {@code Main PREFIX all|roundtrip PATTERN}: runs the cases whose PREFIX/name matches the pattern; exit code 1 if any failed. */
public final class Main {
    public static void main(String[] args) throws Exception {
        Suite suite = new Suite(args[0], args[2]);
        if (args[1].equals("roundtrip")) {
            suite.run("roundtrip", Roundtrip::run);
        } else {
            RetryAndDlq.add(suite);
            Delay.add(suite);
            Rebalance.add(suite);
            PushConsumers.add(suite);
            LitePull.add(suite);
            Producers.add(suite);
            suite.run(12);
            Restart.run(suite, "restart");
            Restart.run(suite, "kill9");
        }
        Cluster.shutdown();
        System.exit(suite.failed() == 0 ? 0 : 1);
    }
}
