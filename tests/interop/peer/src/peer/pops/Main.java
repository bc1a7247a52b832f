package peer.pops;

import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Two push consumers of RocketMQ that let the broker share, and pop: NAMESRV. Half of 100 messages are
 * there before the consumers, the others come while they wait. Prints at the end how many messages
 * each consumer got, and how many came twice.
 */
public final class Main {
    private static final String TOPIC = "JavaPops";
    private static final String GROUP = "java-pops";
    private static final int MESSAGES = 100;
    private static final long WAIT_MS = 60_000;
    private static final long QUIET_MS = 1000;
    private static final int CALL_MS = 3000;

    private final PrintStream out = new PrintStream(
        new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private final String namesrv;
    private final Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();

    private Main(String namesrv) {
        this.namesrv = namesrv;
    }

    public static void main(String[] args) {
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        int status = 0;
        try {
            new Main(args[0]).run(MESSAGES);
        } catch (Exception e) {
            e.printStackTrace();
            status = 1;
        }
        Runtime.getRuntime().halt(status);
    }

    private void run(int count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("java-pop-producers");
        producer.setNamesrvAddr(namesrv);
        producer.start();
        send(producer, 0, count / 2);
        setMode();

        List<AtomicInteger> counts = new ArrayList<>();
        for (String name : List.of("first", "second")) {
            counts.add(consume(name));
        }
        await(count / 2);
        send(producer, count / 2, count);
        await(count);
        Thread.sleep(QUIET_MS);

        long twice = seen.values().stream().filter(each -> each.get() > 1).count();
        out.println("@consumed=" + seen.size());
        out.println("@twice=" + twice);
        out.println("@by each=" + counts);
    }

    private void send(DefaultMQProducer producer, int begin, int end) throws Exception {
        for (int number = begin; number < end; ++number) {
            byte[] body = String.valueOf(number).getBytes(StandardCharsets.UTF_8);
            SendStatus status = producer.send(new Message(TOPIC, body)).getSendStatus();
            if (status != SendStatus.SEND_OK) {
                throw new IllegalStateException(status.name());
            }
        }
    }

    private void setMode() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setNamesrvAddr(namesrv);
        admin.start();
        for (BrokerData broker : admin.examineTopicRouteInfo(TOPIC).getBrokerDatas()) {
            String address = broker.selectBrokerAddr();
            SubscriptionGroupConfig group = new SubscriptionGroupConfig();
            group.setGroupName(GROUP);
            admin.createAndUpdateSubscriptionGroupConfig(address, group);
            admin.setMessageRequestMode(address, TOPIC, GROUP, MessageRequestMode.POP, 0, CALL_MS);
        }
        admin.shutdown();
    }

    private AtomicInteger consume(String name) throws Exception {
        AtomicInteger count = new AtomicInteger();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(GROUP);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.subscribe(TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                String body = new String(each.getBody(), StandardCharsets.UTF_8);
                seen.computeIfAbsent(body, key -> new AtomicInteger()).incrementAndGet();
                count.incrementAndGet();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return count;
    }

    private void await(int count) throws Exception {
        long end = System.currentTimeMillis() + WAIT_MS;
        while (seen.size() < count && System.currentTimeMillis() < end) {
            Thread.sleep(20);
        }
    }
}
