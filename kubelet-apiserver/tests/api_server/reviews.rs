//! `TokenReview`, `SubjectAccessReview` and `SelfSubjectAccessReview`.

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenReview};
use k8s_openapi::api::authorization::v1::{SelfSubjectAccessReview, SubjectAccessReview};
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use kube_client::api::PostParams;
use kube_client::{Api, Client};
use kubelet_apiserver::{ApiServer, User};
use serde_json::{Value, json};

use super::{pod_of, refusal, server};

async fn token_review(client: &Client, token: &str, audiences: &[&str]) -> Value {
    let review: TokenReview =
        serde_json::from_value(json!({"spec": {"token": token, "audiences": audiences}})).unwrap();
    let reviews: Api<TokenReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &review).await.unwrap();
    serde_json::to_value(review.status.unwrap()).unwrap()
}

async fn access_review(client: &Client, spec: Value) -> Result<Value, kube_client::Error> {
    let review: SubjectAccessReview = serde_json::from_value(json!({"spec": spec})).unwrap();
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &review).await?;
    Ok(serde_json::to_value(review.status.unwrap()).unwrap())
}

async fn service_account_token(server: &ApiServer, spec: Value) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(server.client(), "default");
    let request: TokenRequest = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    let params = PostParams::default();
    let answer = accounts.create_token_request("default", &params, &request).await;
    answer.unwrap().status.unwrap().token.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_token_has_its_owner() {
    let server = server();
    let client = server.client_as(User::node("one"));
    let pod = server
        .create(&pod_of(
            json!({"metadata": {"name": "web"}, "spec": {"nodeName": "one"}}),
        ))
        .unwrap();
    let pod_uid = pod.metadata.uid.unwrap();
    let account: ServiceAccount = server.get("default", "default").unwrap().unwrap();
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "web", "uid": pod_uid});
    let own = service_account_token(&server, json!({"audiences": [], "boundObjectRef": bound})).await;
    let other = service_account_token(&server, json!({"audiences": ["vault", "db"]})).await;
    let fixed = server.token_for(User::bootstrapper("abcdef"));

    const ISSUER: &str = "https://kubernetes.default.svc";
    let review = token_review(&client, &own, &[]).await;
    let id = review["user"]["extra"]["authentication.kubernetes.io/credential-id"][0].clone();
    assert!(id.as_str().unwrap().starts_with("JTI="), "{review}");
    assert_eq!(
        review,
        json!({"authenticated": true, "audiences": [ISSUER], "user": {
            "username": "system:serviceaccount:default:default", "uid": account.metadata.uid,
            "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            "extra": {
                "authentication.kubernetes.io/credential-id": [id],
                "authentication.kubernetes.io/node-name": ["one"],
                "authentication.kubernetes.io/pod-name": ["web"],
                "authentication.kubernetes.io/pod-uid": [pod_uid],
            },
        }})
    );
    let review = token_review(&client, &other, &["db", "web"]).await;
    assert_eq!(review["audiences"], json!(["db"]));
    let review = token_review(&client, &fixed, &[]).await;
    assert_eq!(
        review,
        json!({"authenticated": true, "audiences": [ISSUER], "user": {
            "username": "system:bootstrap:abcdef", "groups": ["system:bootstrappers", "system:authenticated"],
        }})
    );

    server
        .delete::<k8s_openapi::api::core::v1::Pod>("default", "web")
        .unwrap();
    let now = kube_client::api::DeleteParams::default().grace_period(0);
    super::pods(&server).delete("web", &now).await.unwrap();
    let cases = [
        ("bogus", vec![], "invalid bearer token"),
        (&*fixed, vec!["db"], "invalid bearer token"),
        (
            &*other,
            vec![],
            "[invalid bearer token, token audiences [\"vault\" \"db\"] is invalid for the target audiences \
             [\"https://kubernetes.default.svc\"]]",
        ),
        (
            &*own,
            vec![],
            "[invalid bearer token, service account token has been invalidated]",
        ),
    ];
    for (token, audiences, error) in cases {
        let review = token_review(&client, token, &audiences).await;
        assert_eq!(review, json!({"user": {}, "error": error}));
    }
    tokio::time::advance(std::time::Duration::from_secs(2 * 3600)).await;
    let review = token_review(&client, &other, &["db"]).await;
    assert_eq!(
        review["error"],
        "[invalid bearer token, service account token has expired]"
    );

    let reviews: Api<TokenReview> = Api::all(client.clone());
    let empty = reviews
        .create(&PostParams::default(), &TokenReview::default())
        .await;
    assert_eq!(refusal(empty), (400, "BadRequest".into()));
    let reviews: Api<TokenReview> = Api::all(server.client_as(User::bootstrapper("abcdef")));
    let stranger = reviews
        .create(&PostParams::default(), &TokenReview::default())
        .await;
    assert_eq!(refusal(stranger), (403, "Forbidden".into()));
}

#[tokio::test(start_paused = true)]
async fn access_is_what_the_authorizers_decide() {
    let server = server();
    let client = server.client_as(User::node("one"));
    server.grant("alice", &["get"], &["nodes/metrics", "/metrics"]);
    server.grant("operators", &["*"], &["nodes/*"]);
    let nodes = json!(["system:nodes", "system:authenticated"]);
    let of_node = |verb: &str, subresource: &str| json!({"verb": verb, "resource": "nodes", "subresource": subresource, "name": "one"});
    // The user, the groups, what it wants, whether it may, and why.
    let cases = [
        (
            "root",
            json!(["system:masters"]),
            of_node("create", "proxy"),
            true,
            "",
        ),
        (
            "alice",
            json!([]),
            of_node("get", "metrics"),
            true,
            "RBAC: allowed by ClusterRoleBinding \"granted\" of ClusterRole \"granted\" to User \"alice\"",
        ),
        ("alice", json!([]), of_node("create", "metrics"), false, ""),
        ("alice", json!([]), of_node("get", "proxy"), false, ""),
        (
            "bob",
            json!(["operators"]),
            of_node("create", "proxy"),
            true,
            "RBAC: allowed by ClusterRoleBinding \"granted\" of ClusterRole \"granted\" to Group \"operators\"",
        ),
        ("system:node:one", nodes.clone(), of_node("get", ""), true, ""),
        (
            "system:node:two",
            nodes.clone(),
            of_node("get", ""),
            false,
            "node 'two' cannot read 'one', only its own Node object",
        ),
        (
            "system:node:one",
            nodes.clone(),
            of_node("get", "proxy"),
            false,
            "",
        ),
        (
            "system:node:one",
            nodes.clone(),
            json!({"verb": "list", "resource": "pods", "fieldSelector": {
                "requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["one"]}],
            }}),
            true,
            "",
        ),
        (
            "system:node:one",
            nodes,
            json!({"verb": "list", "resource": "pods"}),
            false,
            "can only list/watch pods with spec.nodeName field selector",
        ),
    ];
    for (user, groups, attributes, allowed, reason) in cases {
        let spec = json!({"user": user, "groups": groups, "resourceAttributes": attributes});
        let status = access_review(&client, spec.clone()).await.unwrap();
        let mut expected = json!({"allowed": allowed});
        if !reason.is_empty() {
            expected["reason"] = json!(reason);
        }
        assert_eq!(status, expected, "{spec}");
    }
    for (user, groups, path, allowed) in [
        ("alice", json!([]), "/metrics", true),
        ("bob", json!([]), "/metrics", false),
        ("bob", json!(["system:unauthenticated"]), "/healthz", true),
        ("bob", json!(["system:unauthenticated"]), "/api", false),
        ("bob", json!(["system:authenticated"]), "/apis/apps", true),
    ] {
        let spec =
            json!({"user": user, "groups": groups, "nonResourceAttributes": {"path": path, "verb": "get"}});
        let status = access_review(&client, spec.clone()).await.unwrap();
        assert_eq!(status["allowed"], allowed, "{spec}");
    }

    let both = json!({"user": "a", "resourceAttributes": {}, "nonResourceAttributes": {}});
    for wrong in [json!({"user": "a"}), json!({"resourceAttributes": {}}), both] {
        let refused = access_review(&client, wrong).await;
        assert_eq!(refusal(refused), (422, "Invalid".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_opens_the_server_itself() {
    let server = server();
    let alice = User {
        name: "alice".into(),
        groups: vec!["system:authenticated".into()],
    };
    let secrets: Api<Secret> = Api::namespaced(server.client_as(alice.clone()), "default");
    let nodes: Api<Node> = Api::all(server.client_as(alice.clone()));
    assert_eq!(refusal(secrets.get("a").await).0, 403);
    server.grant("alice", &["get"], &["secrets"]);
    assert_eq!(refusal(secrets.get("a").await).0, 404);
    assert_eq!(refusal(nodes.get("a").await).0, 403);

    let reviews: Api<SelfSubjectAccessReview> = Api::all(server.client_as(alice));
    let can = async |verb: &str| {
        let spec = json!({"spec": {"resourceAttributes": {"verb": verb, "resource": "secrets"}}});
        let review: SelfSubjectAccessReview = serde_json::from_value(spec).unwrap();
        let review = reviews.create(&PostParams::default(), &review).await.unwrap();
        review.status.unwrap().allowed
    };
    assert!(can("get").await);
    assert!(!can("list").await);
    server.revoke("alice");
    assert!(!can("get").await);
    assert_eq!(refusal(secrets.get("a").await).0, 403);
}
