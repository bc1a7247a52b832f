package peer.cluster;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.broker.controller.ReplicasManager;
import org.apache.rocketmq.controller.ControllerManager;
import org.apache.rocketmq.controller.ControllerStartup;
import org.apache.rocketmq.controller.impl.JRaftController;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.remoting.netty.NettyRemotingServer;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import peer.HaServices;
import peer.Timers;

/**
 * One unmodified server from its configuration file: namesrv FILE | controller FILE | broker FILE.
 *
 * The HA service of a broker, and a controller with JRaft, listen at bindAddress too; RocketMQ has
 * no setting for that. The
 * process halts at the end of its standard input, so it does not outlive a killed parent.
 */
public final class Server {
    private Server() {
    }

    public static void main(String[] args) throws Exception {
        haltWithParent();
        Timers.loosen();
        String role = args[0];
        String file = args[1];
        String[] arguments = {"-c", file};
        switch (role) {
            case "namesrv" -> NamesrvStartup.main(arguments);
            case "controller" -> {
                ControllerManager manager = ControllerStartup.createControllerManager(arguments);
                if (!manager.initialize()) {
                    throw new IllegalStateException("the controller did not start");
                }
                if (manager.getController() instanceof JRaftController jraft) {
                    listenAt(jraft, bindAddress(file));
                }
                manager.start();
            }
            case "broker" -> {
                BrokerController broker = BrokerStartup.createBrokerController(arguments);
                listenAt(broker, bindAddress(file));
                BrokerStartup.start(broker);
            }
            default -> throw new IllegalArgumentException(role);
        }
        System.out.printf("%n{\"event\":\"ready\",\"role\":\"%s\"}%n", role);
    }

    private static void haltWithParent() {
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (IOException e) {
                // The parent is gone.
            }
            Runtime.getRuntime().halt(0);
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static String bindAddress(String file) throws IOException {
        Properties properties = new Properties();
        try (InputStream in = new FileInputStream(file)) {
            properties.load(in);
        }
        return properties.getProperty("bindAddress");
    }

    private static void listenAt(JRaftController controller, String host) {
        Object server = HaServices.get(controller, JRaftController.class, "remotingServer");
        Object config = HaServices.get(server, NettyRemotingServer.class, "nettyServerConfig");
        ((NettyServerConfig) config).setBindAddress(host);
    }

    private static void listenAt(BrokerController broker, String host) {
        DefaultMessageStore store = (DefaultMessageStore) broker.getMessageStore();
        if (broker.getReplicasManager() == null) {
            // Without a controller the broker speaks the classic protocol.
            HaServices.install(store, new HaServices.Classic(host, null));
            return;
        }
        HaServices.Switching service = new HaServices.Switching(host);
        HaServices.install(store, service);
        HaServices.set(broker.getReplicasManager(), ReplicasManager.class, "haService", service);
    }
}
