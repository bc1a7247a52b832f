package peer;

import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.namesrv.NamesrvStartup;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Does a little of what each program does, so that a JVM that archives its classes at its end has
 * most of what they load. No server is started, so no port is needed.
 */
public final class Archive {
    private static final String SPEC = """
        {"seed": 1, "topics": [{"name": "T", "queues": 1}],
         "store": {"mappedFileSizeCommitLog": 65536, "maxHashSlotNum": 50, "maxIndexNum": 400},
         "steps": [{"kind": "normal", "count": 5, "topics": ["T"], "body": [1, 90]}]}""";
    private static final String NOBODY = "127.0.0.1:1";

    private Archive() {
    }

    public static void main(String[] args) throws Exception {
        Path root = Files.createTempDirectory("archive");
        System.setProperty("rocketmq.home.dir", root.toString());
        System.setProperty("user.home", root.toString());
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        System.setProperty("tls.server.mode", "disabled");

        store(root.resolve("case"));
        replica(root.resolve("replica"));
        servers(root);
        client();
        // Without the hooks of what was made here: nothing was started that they could end.
        Runtime.getRuntime().halt(0);
    }

    private static void store(Path dir) throws Exception {
        Path spec = Files.writeString(dir.resolveSibling("spec.json"), SPEC);
        peer.store.Main.run("write", "--dir", dir.toString(), "--spec", spec.toString());
        peer.store.Main.run("dump", "--dir", dir.toString(), "--keys", "--probe", "--manifest",
            dir.resolve("manifest.jsonl").toString());
    }

    private static void replica(Path dir) {
        String commands = "put 5 300\nstatus\nqueues\nhash\nquit\n";
        System.setIn(new ByteArrayInputStream(commands.getBytes(StandardCharsets.US_ASCII)));
        peer.ha.Main.run(new String[] {"autoswitch-master", "--dir", dir.toString()});
    }

    private static void servers(Path root) throws Exception {
        String file = Files.writeString(root.resolve("server.conf"), String.join("\n",
            "rocketmqHome=" + root, "storePathRootDir=" + root.resolve("store"),
            "storePathCommitLog=" + root.resolve("store/commitlog"), "bindAddress=127.0.0.1",
            "mappedFileSizeCommitLog=65536", "mappedFileSizeConsumeQueue=20000", "maxHashSlotNum=50",
            "maxIndexNum=400", "timerWheelEnable=false", "brokerRole=SLAVE", "brokerId=-1",
            "enableControllerMode=true", "controllerAddr=" + NOBODY, "namesrvAddr=" + NOBODY)).toString();
        NamesrvStartup.parseCommandlineAndConfigFile(new String[] {"-c", file});
        NamesrvStartup.createNamesrvController();
        BrokerStartup.createBrokerController(new String[] {"-c", file});
    }

    private static void client() {
        MQAdminStartup.main0(new String[] {"help"}, null);
        DefaultMQProducer producer = new DefaultMQProducer("archive");
        producer.setNamesrvAddr(NOBODY);
        producer.setSendMsgTimeout(100);
        try {
            producer.start();
            producer.send(new Message("T", "", "key", new byte[1]));
        } catch (Exception e) {
            // Nobody takes the message.
        }
    }
}
