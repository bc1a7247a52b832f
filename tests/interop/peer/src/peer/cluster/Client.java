package peer.cluster;

import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedSet;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import peer.Timers;

/**
 * RocketMQ's client and administration tool, with a command a line on the standard input and a JSON
 * object a line on the standard output: produce NAMESRV TOPIC | stop | consume NAMESRV TOPIC |
 * read NAMESRV TOPIC | admin ARGUMENTS.
 *
 * Each message has a number of its own as its body. It is sent once: a failure is reported, and the
 * next message follows.
 */
public final class Client {
    private static final int SEND_TIMEOUT_MS = 2000;
    private static final int PAUSE_MS = 25;
    private static final int PAUSE_AFTER_FAILURE_MS = 100;

    private final PrintStream out = new PrintStream(
        new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
    private DefaultMQProducer producer;
    private Thread sender;
    private volatile boolean isStopping;
    private int next;

    private Client() {
    }

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.client.logUseSlf4j", "false");
        Timers.loosen();
        Client client = new Client();
        client.emit("event", "ready");
        BufferedReader in = new BufferedReader(
            new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            try {
                client.obey(words);
            } catch (Exception e) {
                client.emit("event", "error", "in", "command", "line", line, "why", e.toString());
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private void obey(String[] words) throws Exception {
        switch (words[0]) {
            case "produce" -> produce(words[1], words[2]);
            case "stop" -> stop();
            case "consume" -> consume(words[1], words[2]);
            case "read" -> read(words[1], words[2]);
            case "admin" -> admin(Arrays.copyOfRange(words, 1, words.length));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void emit(Object... pairs) {
        Map<String, Object> fields = new LinkedHashMap<>();
        for (int i = 0; i + 1 < pairs.length; i += 2) {
            fields.put(String.valueOf(pairs[i]), pairs[i + 1]);
        }
        synchronized (out) {
            out.println(JSON.toJSONString(fields));
        }
    }

    private void produce(String namesrv, String topic) throws Exception {
        producer = new DefaultMQProducer("peer-producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setPollNameServerInterval(200);
        producer.start();
        isStopping = false;
        sender = new Thread(() -> send(topic), "sender");
        sender.start();
        emit("event", "done");
    }

    private void send(String topic) {
        while (!isStopping) {
            int number = next++;
            long pauseMs = PAUSE_MS;
            try {
                byte[] body = String.valueOf(number).getBytes(StandardCharsets.US_ASCII);
                SendResult result = producer.send(new Message(topic, "", "key-" + number, body));
                emit("event", "sent", "n", number, "status", result.getSendStatus().name());
            } catch (Exception e) {
                int code = e instanceof MQClientException known ? known.getResponseCode() : -1;
                String why = String.valueOf(e.getMessage());
                emit("event", "failed", "n", number, "code", code, "why", why);
                pauseMs = PAUSE_AFTER_FAILURE_MS;
            }
            try {
                Thread.sleep(pauseMs);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private void stop() throws Exception {
        isStopping = true;
        sender.join();
        producer.shutdown();
        emit("event", "done");
    }

    /** Reports each message that a push consumer receives, from the first on, until the end. */
    private void consume(String namesrv, String topic) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("peer-consumer");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("consumer");
        consumer.setPollNameServerInterval(200);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.US_ASCII);
                emit("event", "received", "n", Integer.valueOf(body));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        emit("event", "done");
    }

    /** Reports the numbers of all messages from the first to the last of each queue. */
    private void read(String namesrv, String topic) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("peer-reader");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("reader-" + System.nanoTime());
        consumer.setConsumerPullTimeoutMillis(3000);
        consumer.start();
        SortedSet<Integer> numbers = new TreeSet<>();
        try {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                long offset = consumer.minOffset(queue);
                long end = consumer.maxOffset(queue);
                PullStatus status = PullStatus.FOUND;
                while (offset < end && status != PullStatus.NO_NEW_MSG) {
                    PullResult pulled = consumer.pull(queue, "*", offset, 32);
                    status = pulled.getPullStatus();
                    if (status == PullStatus.FOUND) {
                        for (MessageExt message : pulled.getMsgFoundList()) {
                            String body = new String(message.getBody(), StandardCharsets.US_ASCII);
                            numbers.add(Integer.valueOf(body));
                        }
                    }
                    offset = pulled.getNextBeginOffset();
                }
            }
        } finally {
            consumer.shutdown();
        }
        emit("event", "done", "numbers", numbers);
    }

    private void admin(String[] arguments) throws ReflectiveOperationException {
        PrintStream formerOut = System.out;
        PrintStream formerErr = System.err;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        try (PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
                PrintStream err = new PrintStream(errors, true, StandardCharsets.UTF_8)) {
            System.setOut(out);
            System.setErr(err);
            // A command keeps clients that it has closed in fields, and cannot run again.
            Field commands = MQAdminStartup.class.getDeclaredField("SUB_COMMANDS");
            commands.setAccessible(true);
            ((List<?>) commands.get(null)).clear();
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(formerOut);
            System.setErr(formerErr);
        }
        emit("event", "done", "printed", printed.toString(StandardCharsets.UTF_8),
                "errors", errors.toString(StandardCharsets.UTF_8));
    }
}
