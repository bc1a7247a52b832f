package peer.nameserver;

import io.netty.channel.ChannelHandlerContext;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyRemotingServer;
import org.apache.rocketmq.remoting.netty.NettyRequestProcessor;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.DataVersion;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.RequestCode;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.remoting.protocol.body.GetBrokerMemberGroupResponseBody;
import org.apache.rocketmq.remoting.protocol.body.KVTable;
import org.apache.rocketmq.remoting.protocol.body.RegisterBrokerBody;
import org.apache.rocketmq.remoting.protocol.body.TopicConfigAndMappingSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.body.TopicList;
import org.apache.rocketmq.remoting.protocol.header.GetBrokerMemberGroupRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.NotifyMinBrokerIdChangeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.BrokerHeartbeatRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetKVListByNamespaceRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.GetRouteInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.PutKVConfigRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.QueryDataVersionRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.QueryDataVersionResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.RegisterBrokerResponseHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.UnRegisterBrokerRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.WipeWritePermOfBrokerRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.namesrv.WipeWritePermOfBrokerResponseHeader;
import org.apache.rocketmq.remoting.protocol.route.TopicRouteData;

/**
 * Two brokers and a client in one process, of RocketMQ's own remoting: {@code Main HOST:PORT}. Each
 * answer of the nameserver is decoded by RocketMQ and printed as a line of its JSON after a name.
 */
public final class Main {
    private static final String CLUSTER = "east";
    private static final String NAME = "broker-a";
    private static final String MASTER = "127.0.0.1:1";
    private static final long TIMEOUT_MS = 30_000;

    private final String nameserver;
    private final NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
    private final BlockingQueue<RemotingCommand> notifications = new LinkedBlockingQueue<>();

    private Main(String nameserver) {
        this.nameserver = nameserver;
    }

    public static void main(String[] args) {
        int status = 0;
        try {
            new Main(args[0]).run();
        } catch (Exception e) {
            e.printStackTrace();
            status = 1;
        }
        // The threads of a client that failed would keep the process alive.
        System.exit(status);
    }

    private void run() throws Exception {
        client.start();
        NettyServerConfig config = new NettyServerConfig();
        config.setBindAddress("127.0.0.1");
        config.setListenPort(0);
        NettyRemotingServer broker = new NettyRemotingServer(config);
        ExecutorService executor = Executors.newSingleThreadExecutor();
        broker.registerProcessor(RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE, taking(), executor);
        broker.start();
        String slave = "127.0.0.1:" + broker.localListenPort();

        register("register master", 0, MASTER, false);
        register("register slave", 1, slave, true);
        questions();
        changes();
        heartbeat(slave);
        unregister();
        NotifyMinBrokerIdChangeRequestHeader notified = (NotifyMinBrokerIdChangeRequestHeader)
            notifications.poll(TIMEOUT_MS, TimeUnit.MILLISECONDS)
                .decodeCommandCustomHeader(NotifyMinBrokerIdChangeRequestHeader.class);
        print("notification", List.of(notified.getMinBrokerId(),
            notified.getMinBrokerAddr().equals(slave), notified.getOfflineBrokerAddr()));
        route("route without master", "orders");
    }

    private NettyRequestProcessor taking() {
        return new NettyRequestProcessor() {
            @Override
            public RemotingCommand processRequest(ChannelHandlerContext ctx, RemotingCommand request) {
                notifications.add(request);
                return null;
            }

            @Override
            public boolean rejectRequest() {
                return false;
            }
        };
    }

    private void register(String event, long id, String address, boolean compressed) throws Exception {
        TopicConfigAndMappingSerializeWrapper topics = new TopicConfigAndMappingSerializeWrapper();
        topics.setDataVersion(version());
        for (String topic : List.of("orders", "payments")) {
            topics.getTopicConfigTable().put(topic, new TopicConfig(topic, 4, 4, 6));
        }
        RegisterBrokerBody registration = new RegisterBrokerBody();
        registration.setTopicConfigSerializeWrapper(topics);
        byte[] body = registration.encode(compressed);

        RegisterBrokerRequestHeader header = new RegisterBrokerRequestHeader();
        header.setBrokerName(NAME);
        header.setBrokerAddr(address);
        header.setClusterName(CLUSTER);
        header.setHaServerAddr(address);
        header.setBrokerId(id);
        header.setHeartbeatTimeoutMillis(60_000L);
        header.setEnableActingMaster(true);
        header.setCompressed(compressed);
        header.setBodyCrc32(UtilAll.crc32(body));
        RemotingCommand response = call(RequestCode.REGISTER_BROKER, header, body);
        RegisterBrokerResponseHeader found = (RegisterBrokerResponseHeader)
            response.decodeCommandCustomHeader(RegisterBrokerResponseHeader.class);
        print(event, List.of(response.getCode(), String.valueOf(found.getMasterAddr())));
    }

    private void questions() throws Exception {
        route("route", "orders");
        route("no route", "refunds");
        byte[] info = call(RequestCode.GET_BROKER_CLUSTER_INFO, null, null).getBody();
        print("cluster info", RemotingSerializable.decode(info, ClusterInfo.class)
            .getBrokerAddrTable().get(NAME).getBrokerAddrs().get(0L));

        GetBrokerMemberGroupRequestHeader group = new GetBrokerMemberGroupRequestHeader();
        group.setClusterName(CLUSTER);
        group.setBrokerName(NAME);
        byte[] members = call(RequestCode.GET_BROKER_MEMBER_GROUP, group, null).getBody();
        print("member group", GetBrokerMemberGroupResponseBody
            .decode(members, GetBrokerMemberGroupResponseBody.class)
            .getBrokerMemberGroup().getBrokerAddrs().keySet());

        QueryDataVersionRequestHeader query = new QueryDataVersionRequestHeader();
        query.setBrokerName(NAME);
        query.setBrokerAddr(MASTER);
        query.setClusterName(CLUSTER);
        query.setBrokerId(0L);
        RemotingCommand response = call(RequestCode.QUERY_DATA_VERSION, query, version().encode());
        QueryDataVersionResponseHeader changed = (QueryDataVersionResponseHeader)
            response.decodeCommandCustomHeader(QueryDataVersionResponseHeader.class);
        DataVersion known = DataVersion.decode(response.getBody(), DataVersion.class);
        print("data version", List.of(changed.getChanged(), known.equals(version())));

        byte[] topics = call(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, null, null).getBody();
        print("topics", TopicList.decode(topics, TopicList.class).getTopicList().stream().sorted().toList());
    }

    private void changes() throws Exception {
        PutKVConfigRequestHeader put = new PutKVConfigRequestHeader();
        put.setNamespace("space");
        put.setKey("key");
        put.setValue("välue");
        call(RequestCode.PUT_KV_CONFIG, put, null);
        GetKVListByNamespaceRequestHeader list = new GetKVListByNamespaceRequestHeader();
        list.setNamespace("space");
        byte[] pairs = call(RequestCode.GET_KVLIST_BY_NAMESPACE, list, null).getBody();
        print("key values", KVTable.decode(pairs, KVTable.class).getTable());

        WipeWritePermOfBrokerRequestHeader wipe = new WipeWritePermOfBrokerRequestHeader();
        wipe.setBrokerName(NAME);
        RemotingCommand response = call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe, null);
        WipeWritePermOfBrokerResponseHeader wiped = (WipeWritePermOfBrokerResponseHeader)
            response.decodeCommandCustomHeader(WipeWritePermOfBrokerResponseHeader.class);
        print("wiped", wiped.getWipeTopicCount());
        print("unknown request", call(9999, null, null).getCode());
    }

    private void heartbeat(String address) throws Exception {
        BrokerHeartbeatRequestHeader header = new BrokerHeartbeatRequestHeader();
        header.setClusterName(CLUSTER);
        header.setBrokerAddr(address);
        header.setBrokerName(NAME);
        RemotingCommand request = RemotingCommand.createRequestCommand(RequestCode.BROKER_HEARTBEAT, header);
        client.invokeOneway(nameserver, request, TIMEOUT_MS);
    }

    private void unregister() throws Exception {
        UnRegisterBrokerRequestHeader header = new UnRegisterBrokerRequestHeader();
        header.setBrokerName(NAME);
        header.setBrokerAddr(MASTER);
        header.setClusterName(CLUSTER);
        header.setBrokerId(0L);
        print("unregistered", call(RequestCode.UNREGISTER_BROKER, header, null).getCode());
    }

    private void route(String event, String topic) throws Exception {
        GetRouteInfoRequestHeader header = new GetRouteInfoRequestHeader();
        header.setTopic(topic);
        RemotingCommand response = call(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, null);
        if (response.getBody() == null) {
            print(event, response.getCode());
            return;
        }
        TopicRouteData route = TopicRouteData.decode(response.getBody(), TopicRouteData.class);
        print(event, List.of(route.getBrokerDatas().get(0).getBrokerAddrs().keySet().stream().sorted().toList(),
            route.getQueueDatas().get(0).getPerm(), route.getQueueDatas().get(0).getReadQueueNums()));
    }

    private RemotingCommand call(int code, CommandCustomHeader header, byte[] body) throws Exception {
        RemotingCommand request = RemotingCommand.createRequestCommand(code, header);
        request.setBody(body);
        return client.invokeSync(nameserver, request, TIMEOUT_MS);
    }

    private static DataVersion version() {
        DataVersion version = new DataVersion();
        version.setTimestamp(1_700_000_000_000L);
        return version;
    }

    private static void print(String event, Object value) {
        System.out.println("@" + event + "=" + RemotingSerializable.toJson(value, false));
    }
}
