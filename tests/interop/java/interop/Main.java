package interop;

/** {@code Main PREFIX all|roundtrip|brokers PATTERN}: runs the cases whose PREFIX/name matches the pattern; exit code 1 if any failed. */
public final class Main {
    public static void main(String[] args) throws Exception {
        Suite suite = new Suite(args[0], args[2]);
        suite.run("roundtrip", Roundtrip::run);
        if (args[1].equals("all")) {
            RetryAndDlq.add(suite);
            Delay.add(suite);
            Rebalance.add(suite);
            PushConsumers.add(suite);
            LitePull.add(suite);
            Producers.add(suite);
            suite.run(10);
            Restart.run(suite, "restart");
            Restart.run(suite, "kill9");
        }
        if (args[1].equals("brokers")) {
            Brokers.add(suite);
            suite.run(10);
            Brokers.restart(suite);
        }
        Cluster.shutdown();
        System.exit(suite.failed() == 0 ? 0 : 1);
    }
}
