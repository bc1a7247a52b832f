package org.apache.rocketmq.test.base;

import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.attribute.CQType;
import org.apache.rocketmq.common.attribute.TopicMessageType;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.logging.org.slf4j.Logger;
import org.apache.rocketmq.logging.org.slf4j.LoggerFactory;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.test.util.MQAdminTestUtils;
import org.junit.Assert;
import upstream.RemoteBroker;

/**
 * Takes the place of RocketMQ's class of this name, which starts the servers of its tests.
 *
 * This one starts nothing. The properties upstream.namesrv and upstream.brokers have the ports, at
 * 127.0.0.1, of a nameserver and of three brokers in other processes.
 */
public class IntegrationTestBase {
    public static Logger logger = LoggerFactory.getLogger(IntegrationTestBase.class);
    public static volatile int commitLogSize = 1024 * 1024 * 100;

    protected static final String SEP = File.separator;
    protected static final String BROKER_NAME_PREFIX = "TestBrokerName_";
    protected static final AtomicInteger BROKER_INDEX = new AtomicInteger(0);
    protected static final List<File> TMPE_FILES = new ArrayList<>();
    protected static final List<BrokerController> BROKER_CONTROLLERS = new ArrayList<>();
    protected static final List<NamesrvController> NAMESRV_CONTROLLERS = new ArrayList<>();
    protected static final int INDEX_NUM = 1000;
    protected static int topicCreateTime = 30 * 1000;

    public static String createBaseDir() {
        File root = new File(System.getProperty("java.io.tmpdir"), "upstream-" + UUID.randomUUID());
        TMPE_FILES.add(root);
        return root.getPath();
    }

    public static NamesrvController createAndStartNamesrv() {
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Integer.getInteger("upstream.namesrv"));
        return new NamesrvController(new NamesrvConfig(), server);
    }

    public static BrokerController createAndStartBroker(String namesrv) {
        int index = BROKER_INDEX.getAndIncrement();
        String port = System.getProperty("upstream.brokers").split(",")[index];

        BrokerConfig config = new BrokerConfig();
        config.setBrokerName(BROKER_NAME_PREFIX + index);
        config.setBrokerIP1("127.0.0.1");
        config.setListenPort(Integer.parseInt(port));
        config.setNamesrvAddr(namesrv);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(Integer.parseInt(port));
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(createBaseDir());
        return new RemoteBroker(config, server, store);
    }

    public static BrokerController createAndStartBroker(MessageStoreConfig store, BrokerConfig broker) {
        throw RemoteBroker.inTheJvm("a broker with settings of the test");
    }

    public static void createAndStartProxy(String namesrv) {
        throw RemoteBroker.inTheJvm("a proxy");
    }

    public static boolean initTopic(String topic, String namesrv, String cluster, CQType queueType) {
        int queues = BaseConf.QUEUE_NUMBERS;
        return initTopic(topic, namesrv, cluster, queues, queueType, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(String topic, String namesrv, String cluster, TopicMessageType type) {
        return initTopic(topic, namesrv, cluster, BaseConf.QUEUE_NUMBERS, CQType.SimpleCQ, type);
    }

    public static boolean initTopic(
        String topic, String namesrv, String cluster, int queues, CQType queueType) {
        return initTopic(topic, namesrv, cluster, queues, queueType, TopicMessageType.NORMAL);
    }

    public static boolean initTopic(
        String topic, String namesrv, String cluster, int queues, CQType queueType,
        TopicMessageType type) {
        return initTopic(topic, namesrv, cluster, queues, queueType, type, null);
    }

    public static boolean initTopic(
        String topic, String namesrv, String cluster, int queues, CQType queueType,
        TopicMessageType type, Long liteExpirationMinutes) {
        Map<String, String> attributes = new HashMap<>();
        if (queueType != CQType.SimpleCQ) {
            attributes.put("+queue.type", queueType.toString());
        }
        if (type != TopicMessageType.NORMAL) {
            attributes.put("+message.type", type.getValue());
        }
        if (liteExpirationMinutes != null) {
            attributes.put("+lite.topic.expiration", liteExpirationMinutes.toString());
        }
        Assert.assertTrue(
            "topic " + topic + " was not made",
            MQAdminTestUtils.createTopic(namesrv, cluster, topic, queues, attributes, topicCreateTime));
        return true;
    }

    public static void deleteFile(File file) {
    }

    public static void initMQAdmin(String namesrv) {
        try {
            MQAdminTestUtils.startAdmin(namesrv);
        } catch (MQClientException error) {
            throw new IllegalStateException(error);
        }
    }
}
