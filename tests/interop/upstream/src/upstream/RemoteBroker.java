package upstream;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.offset.ConsumerOffsetManager;
import org.apache.rocketmq.broker.pop.orderly.ConsumerOrderInfoManager;
import org.apache.rocketmq.broker.subscription.SubscriptionGroupManager;
import org.apache.rocketmq.broker.topic.TopicConfigManager;
import org.apache.rocketmq.broker.topic.TopicQueueMappingCleanService;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.admin.OffsetWrapper;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The object of a broker, for a broker in another process.
 *
 * What tests ask of topics, groups, offsets and the ends of queues becomes requests to that broker.
 * Whatever has no request throws an exception whose message begins with IN THE JVM. Settings that a
 * test changes have no effect.
 */
public final class RemoteBroker extends BrokerController {
    private static final long TIMEOUT_MS = 3000;

    private final String address;
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);
    private final MessageStore store;

    public RemoteBroker(BrokerConfig broker, NettyServerConfig server, MessageStoreConfig config) {
        super(broker, server, new NettyClientConfig(), config);
        try {
            store = new Store(config, this);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        topicConfigManager = new Topics();
        subscriptionGroupManager = new Groups();
        consumerOffsetManager = new Offsets();

        address = broker.getBrokerIP1() + ":" + broker.getListenPort();
        // Tests send requests of their own by the connections of the broker.
        getBrokerOuterAPI().updateNameServerAddressList(broker.getNamesrvAddr());
        getBrokerOuterAPI().start();
        admin.setNamesrvAddr(broker.getNamesrvAddr());
        admin.setInstanceName(UUID.randomUUID().toString());
        request(() -> {
            admin.start();
            return null;
        });
    }

    /** Returns the exception for what needs a broker in the JVM of the test. */
    public static UnsupportedOperationException inTheJvm(String what) {
        return new UnsupportedOperationException("IN THE JVM: " + what);
    }

    @Override
    public boolean initialize() {
        return true;
    }

    @Override
    public void start() {
    }

    @Override
    public void shutdown() {
    }

    /** The broker registers each change when it is made. */
    @Override
    public synchronized void registerBrokerAll(boolean checkOrder, boolean oneway, boolean force) {
    }

    @Override
    public MessageStore getMessageStore() {
        return store;
    }

    @Override
    public void registerServerRPCHook(RPCHook hook) {
        throw inTheJvm("a hook for requests");
    }

    @Override
    public ConsumerOrderInfoManager getConsumerOrderInfoManager() {
        throw inTheJvm("the order of POP");
    }

    @Override
    public TopicQueueMappingCleanService getTopicQueueMappingCleanService() {
        throw inTheJvm("the cleaning of static topics");
    }

    private MessageQueue queue(String topic, int queue) {
        return new MessageQueue(topic, getBrokerConfig().getBrokerName(), queue);
    }

    private interface Request<T> {
        T send() throws InterruptedException, MQBrokerException, MQClientException, RemotingException;
    }

    private static <T> T request(Request<T> request) {
        try {
            return request.send();
        } catch (InterruptedException | MQBrokerException | MQClientException | RemotingException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Only the methods below may be called; tests call no others. */
    private final class Store extends DefaultMessageStore {
        Store(MessageStoreConfig config, BrokerController broker) throws IOException {
            super(config, broker.getBrokerStatsManager(), null, broker.getBrokerConfig(),
                new ConcurrentHashMap<>());
        }

        @Override
        public long dispatchBehindBytes() {
            Map<String, String> state = request(() -> admin.fetchBrokerRuntimeStats(address)).getTable();
            return Long.parseLong(state.get("dispatchBehindBytes"));
        }

        @Override
        public long getMaxOffsetInQueue(String topic, int queue) {
            return request(() -> admin.maxOffset(queue(topic, queue)));
        }

        @Override
        public long getMinOffsetInQueue(String topic, int queue) {
            return request(() -> admin.minOffset(queue(topic, queue)));
        }

        @Override
        public long estimateMessageCount(
            String topic, int queue, long from, long to, MessageFilter filter) {
            throw inTheJvm("an estimate of the store");
        }

        @Override
        public int cleanUnusedTopic(Set<String> kept) {
            throw inTheJvm("the cleaning of topics");
        }
    }

    private final class Topics extends TopicConfigManager {
        /** Tests look up single topics. */
        @Override
        public ConcurrentMap<String, TopicConfig> getTopicConfigTable() {
            return new ConcurrentHashMap<>() {
                @Override
                public TopicConfig get(Object topic) {
                    return request(() -> admin.examineTopicConfig(address, (String) topic));
                }
            };
        }

        @Override
        public void updateTopicConfig(TopicConfig topic) {
            request(() -> {
                admin.createAndUpdateTopicConfig(address, topic);
                return null;
            });
        }
    }

    private final class Groups extends SubscriptionGroupManager {
        @Override
        public SubscriptionGroupConfig findSubscriptionGroupConfig(String group) {
            // A broker makes a group that it does not know, with the settings of a new one.
            SubscriptionGroupConfig made = new SubscriptionGroupConfig();
            made.setGroupName(group);
            return request(() -> admin.getAllSubscriptionGroup(address, TIMEOUT_MS))
                .getSubscriptionGroupTable()
                .getOrDefault(group, made);
        }

        @Override
        public void updateSubscriptionGroupConfig(SubscriptionGroupConfig group) {
            request(() -> {
                admin.createAndUpdateSubscriptionGroupConfig(address, group);
                return null;
            });
        }
    }

    private final class Offsets extends ConsumerOffsetManager {
        @Override
        public long queryOffset(String group, String topic, int queue) {
            return progress(group, topic, queue).getConsumerOffset();
        }

        @Override
        public long queryPullOffset(String group, String topic, int queue) {
            return progress(group, topic, queue).getPullOffset();
        }

        private OffsetWrapper progress(String group, String topic, int queue) {
            return request(() -> admin.examineConsumeStats(address, group, topic, TIMEOUT_MS))
                .getOffsetTable()
                .get(queue(topic, queue));
        }
    }
}
